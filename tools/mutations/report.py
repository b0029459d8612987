"""The result as a page: rates per room, every survivor, every change that was set aside, and who caught the rest."""

import platform
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version

from tools.mutations.changes import Change
from tools.mutations.records import Judgements
from tools.mutations.trial import Outcome

HEAD = """# Mutations: single-line changes, and whether the tests notice

Written by `make mutate` (`python -m tools.mutate`, which says how); do not edit. {number} changes of each room drawn
with seed {seed}; Python {python}, torch {torch}, pytest {pytest}.

Caught: a test failed. Timed out: a test took ten times as long as it should, and twenty seconds more, of processor
time, which counts as caught.
Equivalent: judged by hand to change no result, at most how fast it comes or how much memory it takes; each has its
reason below, and all are left out of the rate.
Rate: (caught + timed out) / (all - equivalent).
"""


@dataclass(frozen=True)
class Room:
    """The changes of one room and what came of them, None where one has not been tried."""

    trials: list[tuple[Change, Outcome | None]]

    @property
    def counts(self) -> Counter[str]:
        return Counter("not tried" if outcome is None else outcome.kind for _, outcome in self.trials)

    @property
    def rate(self) -> float:
        """The share that the tests notice; what has not been tried counts as not noticed."""
        counts = self.counts
        return (counts["caught"] + counts["timed out"]) / max(1, len(self.trials) - counts["equivalent"])

    def of(self, *kinds: str) -> list[tuple[Change, Outcome]]:
        return [(change, outcome) for change, outcome in self.trials if outcome is not None and outcome.kind in kinds]

    def summary(self) -> str:
        counted = ", ".join(f"{count} {kind}" for kind, count in sorted(self.counts.items()))
        return f"{100 * self.rate:.1f} % of {len(self.trials) - self.counts['equivalent']} noticed ({counted})"


def written(rooms: dict[str, Room], number: int, seed: int, judged: Judgements) -> str:
    """The page in Markdown."""
    versions = {"python": platform.python_version(), "torch": version("torch"), "pytest": version("pytest")}
    return "\n".join([HEAD.format(number=number, seed=seed, **versions), *_table(rooms), *_parts(rooms, judged)]) + "\n"


def _table(rooms: dict[str, Room]) -> Iterator[str]:
    yield "| room | changes | caught | timed out | survived | equivalent | not tried | rate |"
    yield "|---|---|---|---|---|---|---|---|"
    for name, room in rooms.items():
        kinds = [room.counts[kind] for kind in ("caught", "timed out", "survived", "equivalent", "not tried")]
        yield f"| {name} | {len(room.trials)} | {' | '.join(map(str, kinds))} | {100 * room.rate:.1f} % |"


def _parts(rooms: dict[str, Room], judged: Judgements) -> Iterator[str]:
    for title, kind, reasons in (
        ("Survivors", "survived", judged.survivors),
        ("Equivalent", "equivalent", judged.equivalent),
    ):
        yield f"\n## {title}\n"
        found = [change for room in rooms.values() for change, _ in room.of(kind)]
        if not found:
            yield "None."
        for change in found:
            yield f"{_diff(change)}\n\n{reasons.get(change.key, 'No reason has been written down yet.').strip()}\n"
    yield "\n## Caught\n"
    for room in rooms.values():
        for change, outcome in room.of("caught", "timed out"):
            by = outcome.by.split("[")[0].removeprefix("tests/") or "too long"
            yield f"- `{change.file}:{change.line}` by `{by}`\n\n  ```diff\n{_lines(change, '  ')}\n  ```"


def _diff(change: Change) -> str:
    return f"`{change.file}:{change.line}`\n\n```diff\n{_lines(change)}\n```"


def _lines(change: Change, indent: str = "") -> str:
    return f"{indent}- {change.before.strip()}\n{indent}+ {change.after.strip()}"
