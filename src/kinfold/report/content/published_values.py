"""The numbers of a paper beside a bench that `kinfold reproduce` made of its table."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kinfold.files.documents import read_result
from kinfold.files.paths import check_path
from kinfold.papers.reading import COLUMN_GROUPS, measured
from kinfold.report.content.path_redaction import without_places

FILE = "published.json"  # that `kinfold reproduce` leaves in the folder

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
class Quoted:
    """A row that the paper took from others, and nobody ran."""

    label: str
    source: str
    numbers: dict[str, float]
    words: dict[str, str]
    printed: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Published:
    """values: row -> metric -> number. words: the same for what cannot be read. printed: the same with the digits that
    the paper prints. notes: the title of the table, what was done in another way, and what its readers must know."""

    values: dict[str, dict[str, float]] = field(default_factory=dict)
    words: dict[str, dict[str, str]] = field(default_factory=dict)
    printed: dict[str, dict[str, str]] = field(default_factory=dict)
    quoted: tuple[Quoted, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def columns(self) -> list[str]:
        each = [*self.values.values(), *(row.numbers for row in self.quoted)]
        return [*dict.fromkeys(metric for numbers in each for metric in numbers)]


def published_values(folder: Path, data: str, result: str) -> Published:
    """What was published on this data; nothing where the bench is not that of a table. result: separated or
    concatenated, as the columns of tables on ensembles say."""
    check_path(folder / FILE, folder)
    if not (folder / FILE).is_file():
        return Published()
    about = read_result(folder / FILE, SHAPE, folder)
    if about["data"] != data or result not in ("separated", "concatenated"):
        return Published()
    rows = about["rows"]
    given = {row["row"]: _given(row, result) for row in rows}
    numbers = {name: {m: float(v) for m, v in own.items() if not isinstance(v, str)} for name, own in given.items()}
    words = {name: {m: v for m, v in own.items() if isinstance(v, str)} for name, own in given.items()}
    # without its spread, as the numbers stand
    printed = {
        row["row"]: {m: str(text).partition(" ")[0] for m, text in _of_result(row.get("printed", {}), result).items()}
        for row in rows
    }
    own = [row["row"] for row in rows if row["quoted"] is None]
    quoted = [
        Quoted(row["label"], row["quoted"], numbers[row["row"]], words[row["row"]], printed[row["row"]])
        for row in rows
        if row["quoted"] is not None and given[row["row"]]
    ]
    caveats = [f"{row['label']}: {caveat}" for row in rows for caveat in row["caveats"]]
    title = f"published: {about['title']} ({about['table']}, {about['source']})"
    notes = dict.fromkeys([title, *about["notes"], *about["caveats"], *caveats])
    values = {name: numbers[name] for name in own}
    return Published(values, words, printed, tuple(quoted), tuple(map(without_places, notes)))


def _given(row: Mapping[str, Any], result: str) -> dict[str, float | str]:
    """metric -> number, without its spread, or the word for one that cannot be read."""
    values = _of_result(row["published"], result)
    return {metric: value[0] if isinstance(value, list) else value for metric, value in values.items()}


def _of_result(columns: Mapping[str, Any], result: str) -> dict[str, Any]:
    """metric -> what stands in its column, of the columns that belong to this result."""
    cells = {}
    for column, value in columns.items():
        group = "concatenated" if column.endswith(COLUMN_GROUPS[1]) else "separated"
        metric = measured(column)
        if metric is not None and group == result:
            cells[metric] = value
    return cells
