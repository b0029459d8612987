"""Entries of many benches, put together where they may be compared."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from kinfold.board.claims import Claim
from kinfold.board.entries import BoardEntry, read_entries
from kinfold.experiments.bench import Bench
from kinfold.experiments.groups import count_needed_repeats, find_groups
from kinfold.experiments.statistics import Interval, MethodComparison, compare_methods, compute_interval
from kinfold.experiments.table_styles import Style
from kinfold.files.atomic import write_text
from kinfold.registry import suggest
from kinfold.training.loop.selection import is_better

EFFECT = 0.005  # the difference whose detection is planned: half a percentage point


@dataclass(frozen=True)
class Panel:
    """Methods that were measured on the same data with the same backbone, protocol and metric.

    Attributes:
        entries: Method -> its entry.
    """

    entries: Mapping[str, BoardEntry]

    @property
    def first(self) -> BoardEntry:
        """Any entry; data, backbone, protocol, metric and result are the same for all."""
        return next(iter(self.entries.values()))

    @property
    def title(self) -> str:
        """Data set, backbone, protocol and metric."""
        entry = self.first
        kind = "" if entry.result == "separated" else f", {entry.result}"
        return f"{entry.data}, {entry.backbone}, {entry.protocol}{kind}, {entry.metric}"

    @cached_property
    def comparison(self) -> MethodComparison:
        """Paired tests of all pairs of methods."""
        return compare_methods(
            {name: entry.values for name, entry in self.entries.items()},
            smaller_is_better=is_better(self.first.metric, 0.0, 1.0),
            untrained=[name for name, entry in self.entries.items() if entry.is_untrained],
        )

    @cached_property
    def groups(self) -> list[tuple[str, ...]]:
        """Largest sets of methods in which no pair differs significantly, the best one first."""
        return find_groups(self.comparison)

    def list_groups_of(self, method: str) -> list[int]:
        """Return the numbers, from 1, of the groups that hold a method; empty if it was not compared."""
        return [number for number, group in enumerate(self.groups, start=1) if method in group]

    def compute_gain(self, method: str) -> Interval | None:
        """Return the gain over the same model before its first step; None if the start is unknown."""
        entry = self.entries[method]
        gains = [value - entry.starts[seed] for seed, value in entry.values.items() if seed in entry.starts]
        return compute_interval(gains) if gains else None

    def count_needed_repeats(self, method: str) -> int | None:
        """Return how many repeats would show half a point of difference to the best method, with probability 0.8.

        None for the best method itself, for one that shares fewer than two seeds with it, and for very many repeats.
        """
        best = self.entries[self.comparison.best_trained].values
        values = self.entries[method].values
        differences = [values[seed] - best[seed] for seed in values if seed in best]
        if method == self.comparison.best_trained or len(differences) < 2:
            return None
        mean = math.fsum(differences) / len(differences)
        deviation = math.sqrt(math.fsum((d - mean) ** 2 for d in differences) / (len(differences) - 1))
        return count_needed_repeats(deviation, EFFECT)


@dataclass(frozen=True, eq=False, repr=False)
class Board:
    """Results of several benches.

    Args:
        panels: Entries that are compared with each other, one panel for each combination of data set, backbone,
            protocol and metric.
        claims: Published numbers to show beside the measured ones.
    """

    panels: Sequence[Panel]
    claims: Sequence[Claim] = ()

    @staticmethod
    def open(folders: Iterable[Path | str], claims: Sequence[Claim] = ()) -> "Board":
        """Read benches and check them.

        Args:
            folders: The folders of the benches.
            claims: Published numbers.

        Raises:
            ValueError: A folder is not that of a bench, or one of its results does not match its data, code or
                configuration; two benches use one name for different data; or two have the same method on the same
                data.
        """
        paths = [Path(folder) for folder in folders]
        names = [path.resolve().name for path in paths]
        repeated = next((name for name in names if names.count(name) > 1), None)
        if repeated is not None:
            raise ValueError(
                f"two benches are called {repeated!r}, and entries are named after them; rename one folder"
            )
        entries = [entry for path in paths for entry in read_entries(Bench.open(path))]
        if not entries:
            raise ValueError("there is nothing to show: no method has a tested repeat yet; give finished benches")
        return Board(_make_panels(entries), tuple(claims))

    def __repr__(self) -> str:
        methods = {name for panel in self.panels for name in panel.entries}
        counts = ((len(methods), "method"), (len(self.panels), "panel"))
        return f"Board({', '.join(f'{count} {noun}' + 's' * (count != 1) for count, noun in counts)})"

    def _repr_html_(self) -> str:
        return self.table("html")

    @property
    def entries(self) -> list[BoardEntry]:
        """All entries, panel by panel."""
        return [entry for panel in self.panels for entry in panel.entries.values()]

    def find_entry(self, name: str) -> BoardEntry:
        """Return the entry of a name such as "birds/cub/margin"; ValueError with the nearest one otherwise."""
        names = [entry.name for entry in self.entries]
        if name not in names:
            raise ValueError(f"there is no entry {name!r}{suggest(name, names)}; entries are named BENCH/DATA/METHOD")
        return self.entries[names.index(name)]

    def find_claims(self, entry: BoardEntry) -> list[Claim]:
        """Return what was published about a method on a data set in the metric of the entry."""
        key = (entry.method, entry.data, entry.metric)
        return [claim for claim in self.claims if (claim.method, claim.data, claim.metric) == key]

    def table(self, style: Style = "text") -> str:
        """Return an overview of all methods and one table for each panel.

        Args:
            style: "text", "markdown", "latex" or "html".
        """
        from kinfold.board.tables import format_board

        return format_board(self, style)

    def write(self, folder: Path | str) -> list[Path]:
        """Write board.md, and board.html, one page without scripts on which each entry opens to its details.

        Args:
            folder: The folder, created if it does not exist.

        Returns:
            The files.
        """
        from kinfold.board.page import format_page

        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        files = {"board.md": self.table("markdown"), "board.html": format_page(self)}
        for name, text in files.items():
            write_text(folder / name, text)
        return [folder / name for name in files]


def _make_panels(entries: Sequence[BoardEntry]) -> list[Panel]:
    panels: dict[tuple[str, ...], dict[str, BoardEntry]] = {}
    for entry in entries:
        key = (entry.data, entry.backbone, entry.protocol, entry.metric, entry.result)
        panel = panels.setdefault(key, {})
        first = next(iter(panel.values()), entry)
        if entry.data_fingerprint != first.data_fingerprint:
            raise ValueError(
                f"{first.name} and {entry.name} were measured on different data under the name {entry.data!r}; give "
                "the data sets different names in their suites"
            )
        if entry.method in panel:
            raise ValueError(
                f"{first.bench} and {entry.bench} both have {entry.method} on {entry.data}; leave one of them out, or "
                "rename the method in its suite"
            )
        panel[entry.method] = entry
    return [Panel(panel) for panel in panels.values()]
