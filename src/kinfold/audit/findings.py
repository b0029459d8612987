"""What an audit reports: findings about items and classes, as a table and as a CSV file."""

import csv
import io
from collections import Counter
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from kinfold.files.atomic import write_text
from kinfold.optional import import_optional

COLUMNS = ("row", "drop", "kind", "class", "split", "item", "other_row", "score", "reason")
_SHOWN = 50  # findings in a notebook
KINDS = {
    "label-error": "the label is probably wrong",
    "leakage": "nearly the same item is in another split",
    "duplicate-across-classes": "nearly the same item has another label",
    "duplicate": "nearly the same item occurs before",
    "broken": "the image cannot be read",
    "blank": "the image has a single color",
    "transparent": "the image has transparent pixels",
    "tiny": "the image is very small",
}


@dataclass(frozen=True)
class Finding:
    """Something to look at.

    Args:
        row: The position of the item in the dataset, from 0.
        kind: One of `KINDS`.
        label, split: Of the item.
        item: The path of the item, where it has one.
        reason: Why it is reported.
        drop: Whether leaving the item out is advised.
        other_row: The item that it was compared with: its duplicate, or the nearest item of the class that it looks
            like. None where there is none.
        score: What the reason rests on: a probability, a similarity, or a size in pixels.
    """

    row: int
    kind: str
    label: str
    split: str
    item: str
    reason: str
    drop: bool
    other_row: int | None = None
    score: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the columns of the CSV file."""
        return {
            "row": self.row,
            "drop": "yes" if self.drop else "no",
            "kind": self.kind,
            "class": self.label,
            "split": self.split,
            "item": self.item,
            "other_row": "" if self.other_row is None else self.other_row,
            "score": "" if self.score is None else f"{self.score:.6g}",
            "reason": self.reason,
        }


@dataclass(frozen=True, repr=False)
class Audit:
    """The result of an audit.

    Args:
        name: The dataset.
        items, classes: Its size.
        features: What items were compared by: "features", "pixels" or the run.
        findings: What to look at, items that probably should be left out first.
        hard_classes: (class, share of its items that a classifier of the others names right), lowest first.
        confused: (class, class it is taken for, share of its items), highest first.
        class_sizes: Items of each class.
    """

    name: str
    items: int
    classes: int
    features: str
    findings: list[Finding]
    hard_classes: list[tuple[str, float]]
    confused: list[tuple[str, str, float]]
    class_sizes: dict[str, int]

    def count(self, kind: str) -> int:
        """Return the number of findings of a kind."""
        return sum(finding.kind == kind for finding in self.findings)

    @property
    def drops(self) -> list[int]:
        """Positions of the items that should be left out."""
        return sorted({finding.row for finding in self.findings if finding.drop})

    def __repr__(self) -> str:
        counts = Counter(finding.kind for finding in self.findings)
        shown = ", ".join(f"{count} {kind}" for kind, count in counts.items()) or "nothing found"
        return f"<Audit of {self.name}: {self.items:,} items, {self.classes:,} classes; {shown}>"

    def _repr_html_(self) -> str:
        cells = [[escape(str(value)) for value in finding.to_dict().values()] for finding in self.findings[:_SHOWN]]
        head = "".join(f"<th>{name}</th>" for name in COLUMNS)
        body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in cells)
        more = f"<p>and {len(self.findings) - _SHOWN:,} more</p>" if len(self.findings) > _SHOWN else ""
        return f"<p>{escape(repr(self)[1:-1])}</p><table><tr>{head}</tr>{body}</table>{more}"

    def table(self, most: int = 50) -> str:
        """Return one line for each finding: row, drop, kind, class, reason.

        Args:
            most: The number of lines.
        """
        rows = [["row", "drop", "kind", "class", "reason"]]
        for finding in self.findings[:most]:
            rows.append(
                [str(finding.row), "yes" if finding.drop else "no", finding.kind, finding.label, finding.reason]
            )
        widths = [max(len(row[column]) for row in rows) for column in range(4)]
        lines = [
            "  ".join([cell.ljust(width) for cell, width in zip(row, widths, strict=False)] + row[4:]) for row in rows
        ]
        return "\n".join(lines)

    def plot(self) -> Any:
        """Draw the number of findings of each kind, and the sizes of the classes.

        Returns:
            A matplotlib figure.

        Raises:
            ImportError: matplotlib is not installed.
        """
        figure_module = import_optional("matplotlib.figure", "matplotlib", "report", "a plot")
        figure = figure_module.Figure(figsize=(9, 4), layout="constrained")
        left, right = figure.subplots(1, 2)
        kinds = [*KINDS]
        bars = left.barh(kinds, [self.count(kind) for kind in kinds])
        left.bar_label(bars)
        left.invert_yaxis()
        left.set(xlabel="findings")
        right.plot(sorted(self.class_sizes.values(), reverse=True))
        right.set(xlabel="class, largest first", ylabel="items", ylim=(0, None))
        return figure

    def describe(self) -> list[str]:
        """Return the findings in sentences."""
        sizes = sorted(self.class_sizes.values())
        lines = [f"{self.name}: {self.items:,} items, {self.classes:,} classes, compared by {self.features}"]
        for kind, meaning in KINDS.items():
            if self.count(kind):
                lines.append(f"{kind}: {self.count(kind):,} ({meaning})")
        lines.append(f"{len(self.drops):,} items should be left out" if self.drops else "no item should be left out")
        single = sum(size == 1 for size in sizes)
        lines.append(f"class sizes: {sizes[0]:,} to {sizes[-1]:,}, median {sizes[len(sizes) // 2]:,}")
        if single:
            lines.append(f"{single:,} classes have a single item, which no positive pair contains")
        if self.hard_classes:
            shown = ", ".join(f"{name} ({share:.0%})" for name, share in self.hard_classes[:5])
            lines.append(f"hardest classes (items named right): {shown}")
        if self.confused:
            shown = ", ".join(f"{one} as {other} ({share:.0%})" for one, other, share in self.confused[:5])
            lines.append(f"most confused: {shown}")
        return lines

    def to_csv(self, path: Path | str) -> None:
        """Write the findings to a CSV file, which `data.drop` of a recipe reads."""
        text = io.StringIO()
        writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(finding.to_dict() for finding in self.findings)
        write_text(Path(path), text.getvalue())

    def to_dict(self) -> dict[str, Any]:
        """Return everything for JSON."""
        return {**vars(self), "findings": [finding.to_dict() for finding in self.findings]}
