"""Render the result as a Markdown page: rates, survivors, equivalent changes, and which test caught the others."""

import platform
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version

from tools.mutations.changes import Change
from tools.mutations.records import Judgments
from tools.mutations.trial import Outcome

HEAD = """# Mutations: single-line changes, and whether the tests notice

Written by `make mutate` (`python -m tools.mutate`); do not edit. {number} changes of each package drawn with seed
{seed}; Python {python}, torch {torch}, pytest {pytest}.

Caught: a test failed. Timed out: a test took ten times as long as it should, and twenty seconds more, of processor
time, which counts as caught.
Equivalent: judgments by hand to change no result, at most how fast it comes or how much memory it takes; each has its
reason below, and all are left out of the rate.
Rate: (caught + timed out) / (all - equivalent).
"""


@dataclass(frozen=True)
class PackageResult:
    """The changes of one package and what came of them, None where one has not been tried."""

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


def render_page(packages: dict[str, PackageResult], number: int, seed: int, judgments: Judgments) -> str:
    """The page in Markdown."""
    versions = {"python": platform.python_version(), "torch": version("torch"), "pytest": version("pytest")}
    return (
        "\n".join([HEAD.format(number=number, seed=seed, **versions), *_table(packages), *_parts(packages, judgments)])
        + "\n"
    )


def _table(packages: dict[str, PackageResult]) -> Iterator[str]:
    yield "| package | changes | caught | timed out | survived | equivalent | not tried | rate |"
    yield "|---|---|---|---|---|---|---|---|"
    for name, package in packages.items():
        kinds = [package.counts[kind] for kind in ("caught", "timed out", "survived", "equivalent", "not tried")]
        yield f"| {name} | {len(package.trials)} | {' | '.join(map(str, kinds))} | {100 * package.rate:.1f} % |"


def _parts(packages: dict[str, PackageResult], judgments: Judgments) -> Iterator[str]:
    for title, kind, reasons in (
        ("Survivors", "survived", judgments.survivors),
        ("Equivalent", "equivalent", judgments.equivalent),
    ):
        yield f"\n## {title}\n"
        matching = [change for package in packages.values() for change, _ in package.of(kind)]
        if not matching:
            yield "None."
        for change in matching:
            yield f"{_diff(change)}\n\n{reasons.get(change.key, 'No reason is recorded yet.').strip()}\n"
    yield "\n## Caught\n"
    for package in packages.values():
        for change, outcome in package.of("caught", "timed out"):
            by = outcome.by.split("[")[0].removeprefix("tests/") or "too long"
            yield f"- `{change.file}:{change.line}` by `{by}`\n\n  ```diff\n{_lines(change, '  ')}\n  ```"


def _diff(change: Change) -> str:
    return f"`{change.file}:{change.line}`\n\n```diff\n{_lines(change)}\n```"


def _lines(change: Change, indent: str = "") -> str:
    return f"{indent}- {change.before.strip()}\n{indent}+ {change.after.strip()}"
