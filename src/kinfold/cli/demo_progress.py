"""What `kinfold demo` tells where nobody watches a terminal, as in the log of a machine: lines, with the time left."""

import time
from collections.abc import Callable, Sequence

from kinfold.cli.bench import duration
from kinfold.cli.terminal import echo

SILENCE = 20.0  # seconds after which a stage that goes on is told of again


class Lines:
    """A function (stage, share done): a line for each stage as it begins, and again where it goes on for long.

    runs: the stages that are trainings; their lines say how long all of them still take, as soon as that is known.
    kept: follows the name of one that was trained before, and takes no time.
    """

    def __init__(self, runs: Sequence[str], kept: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._runs, self._kept, self._clock = runs, kept, clock
        self._begun = set[str]()
        self._shares: dict[str, float] = {}  # of every training
        self._seconds = 0.0  # in all trainings together
        self._last: tuple[str, float] = ("", 0.0)  # stage and time of the latest call
        self._told = 0.0

    def __call__(self, stage: str, share: float) -> None:
        now = self._clock()
        if stage in self._runs:
            self._seconds += now - self._last[1] if self._last[0] == stage else 0.0
            self._shares[stage] = share
        elif stage.removesuffix(self._kept) in self._runs:
            self._shares[stage.removesuffix(self._kept)] = 1.0
        self._last = (stage, now)
        if stage in self._begun and (share >= 1 or now - self._told < SILENCE):
            return
        going_on = f", {100 * share:.0f} %" if stage in self._begun else ""
        self._begun.add(stage)
        self._told = now
        echo(f"{self._numbered(stage)}{going_on}{self._left(stage)}", err=True)

    def _numbered(self, stage: str) -> str:
        name = stage.removesuffix(self._kept)
        return f"run {self._runs.index(name) + 1} of {len(self._runs)}: {stage}" if name in self._runs else stage

    def _left(self, stage: str) -> str:
        trained = sum(share for name, share in self._shares.items() if name in self._begun)
        if stage not in self._runs or trained <= 0 or self._seconds <= 0:
            return ""
        to_train = len(self._runs) - sum(self._shares.values())
        return f" (about {duration(self._seconds / trained * to_train)} of training left)"
