"""The numbers of a paper beside a benchmark that `kinfold reproduce` made of its table."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kinfold.files.documents import read_result
from kinfold.files.paths import check_path
from kinfold.papers.table_files import COLUMN_GROUPS, parse_metric
from kinfold.report.content.path_redaction import redact_paths

FILE = "published.json"  # written by `kinfold reproduce`

_NUMBER = (float, str, [(float, str)])
SHAPE = {
    "data": str,
    "title": str,
    "table": str,
    "source": str,
    "notes": [str],
    "caveats": [str],
    "rows": [
        {"row": str, "label": str, "quoted": (str, None), "caveats": [str], "published": {str: _NUMBER}},
    ],
}


@dataclass(frozen=True)
class QuotedRow:
    """A row that the paper quotes from others, and that was not run here.

    Args:
        label: Name of the method.
        source: Where the paper quotes it from.
        numbers: Metric -> value.
        unreadable: Metric -> text in place of a number.
        printed: Metric -> number with the digits of the paper.
    """

    label: str
    source: str
    numbers: dict[str, float]
    unreadable: dict[str, str]
    printed: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class PublishedValues:
    """The published table of one dataset.

    Args:
        values: Row -> metric -> number.
        unreadable: Row -> metric -> text in place of a number.
        printed: Row -> metric -> number with the digits of the paper.
        quoted: Rows that were not run here.
        notes: Title of the table, what was done differently, and caveats.
    """

    values: dict[str, dict[str, float]] = field(default_factory=dict)
    unreadable: dict[str, dict[str, str]] = field(default_factory=dict)
    printed: dict[str, dict[str, str]] = field(default_factory=dict)
    quoted: tuple[QuotedRow, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def columns(self) -> list[str]:
        """Metrics that have a published number."""
        rows = [*self.values.values(), *(row.numbers for row in self.quoted)]
        return [*dict.fromkeys(metric for numbers in rows for metric in numbers)]


def read_published_values(folder: Path, data: str, result: str) -> PublishedValues:
    """Read what was published on a dataset; nothing if the benchmark is not that of a table.

    Args:
        folder: Folder of the benchmark.
        data: Name of the dataset.
        result: "separated" or "concatenated", as the columns of tables on ensembles say.
    """
    check_path(folder / FILE, folder)
    if not (folder / FILE).is_file():
        return PublishedValues()
    document = read_result(folder / FILE, SHAPE, folder)
    if document["data"] != data or result not in ("separated", "concatenated"):
        return PublishedValues()
    rows = document["rows"]
    entries = {row["row"]: _drop_spread(_select_columns(row["published"], result)) for row in rows}
    numbers = {name: {m: float(v) for m, v in row.items() if not isinstance(v, str)} for name, row in entries.items()}
    unreadable = {name: {m: v for m, v in row.items() if isinstance(v, str)} for name, row in entries.items()}
    printed = {
        # without the spread, as in `numbers`
        row["row"]: {m: str(v).partition(" ")[0] for m, v in _select_columns(row.get("printed", {}), result).items()}
        for row in rows
    }
    quoted = [
        QuotedRow(
            row["label"], row["quoted"] or "the paper", numbers[row["row"]], unreadable[row["row"]], printed[row["row"]]
        )
        for row in rows
        if not _was_run(row) and entries[row["row"]]
    ]
    values = {row["row"]: numbers[row["row"]] for row in rows if _was_run(row)}
    caveats = [f"{row['label']}: {caveat}" for row in rows for caveat in row["caveats"]]
    title = f"published: {document['title']} ({document['table']}, {document['source']})"
    notes = dict.fromkeys([title, *document["notes"], *document["caveats"], *caveats])
    return PublishedValues(values, unreadable, printed, tuple(quoted), tuple(map(redact_paths, notes)))


def _was_run(row: Mapping[str, Any]) -> bool:
    """Whether a row has numbers of ours; documents of kinfold 0.2 ran no quoted row."""
    return row["not_run"] is None if "not_run" in row else row["quoted"] is None


def _drop_spread(columns: Mapping[str, Any]) -> dict[str, float | str]:
    """Metric -> number, or text for one that cannot be read."""
    return {metric: value[0] if isinstance(value, list) else value for metric, value in columns.items()}


def _select_columns(columns: Mapping[str, Any], result: str) -> dict[str, Any]:
    """Metric -> value, of the columns that belong to this result."""
    values = {}
    for column, value in columns.items():
        group = "concatenated" if column.endswith(COLUMN_GROUPS[1]) else "separated"
        metric = parse_metric(column)
        if metric is not None and group == result:
            values[metric] = value
    return values
