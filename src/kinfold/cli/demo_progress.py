"""Progress of `kinfold demo` without a terminal, as in a log: lines with the time left."""

import time
from collections.abc import Callable, Sequence

from kinfold.cli.bench_progress import format_duration
from kinfold.cli.terminal import echo

SILENCE = 20.0  # seconds after which another line is printed for a stage that continues


class ProgressLines:
    """Callback (stage, fraction) that prints a line when a stage starts, and again if it takes long.

    Args:
        runs: Stages that are trainings. Their lines say how long all of them will take, once that can be estimated.
        reused: Follows the name of a run of an earlier start, which takes no time.
        clock: Returns the time in seconds.
    """

    def __init__(self, runs: Sequence[str], reused: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._runs, self._reused, self._clock = runs, reused, clock
        self._started = set[str]()
        self._fractions: dict[str, float] = {}  # of every training
        self._seconds = 0.0  # of all trainings together
        self._last: tuple[str, float] = ("", 0.0)  # stage and time of the latest call
        self._printed_at = 0.0

    def __call__(self, stage: str, fraction: float) -> None:
        now = self._clock()
        if stage in self._runs:
            self._seconds += now - self._last[1] if self._last[0] == stage else 0.0
            self._fractions[stage] = fraction
        elif stage.removesuffix(self._reused) in self._runs:
            self._fractions[stage.removesuffix(self._reused)] = 1.0
        self._last = (stage, now)
        if stage in self._started and (fraction >= 1 or now - self._printed_at < SILENCE):
            return
        percent = f", {100 * fraction:.0f} %" if stage in self._started else ""
        self._started.add(stage)
        self._printed_at = now
        echo(f"{self._number_stage(stage)}{percent}{self._estimate_left(stage)}", err=True)

    def _number_stage(self, stage: str) -> str:
        name = stage.removesuffix(self._reused)
        return f"run {self._runs.index(name) + 1} of {len(self._runs)}: {stage}" if name in self._runs else stage

    def _estimate_left(self, stage: str) -> str:
        trained = sum(fraction for name, fraction in self._fractions.items() if name in self._started)
        if stage not in self._runs or trained <= 0 or self._seconds <= 0:
            return ""
        to_train = len(self._runs) - sum(self._fractions.values())
        return f" (about {format_duration(self._seconds / trained * to_train)} of training left)"
