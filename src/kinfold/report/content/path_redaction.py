"""What a report may tell of where things lie: names inside the run and its data, nothing of the machine around them."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kinfold.data import ImageFile, ImageFiles
from kinfold.data.items import Items
from kinfold.training.config.parsing import to_toml

# folders and at least one more name: "/home/ann/birds.csv", "C:\data\birds.csv"
_PATH = re.compile(r"(?<![\w.~/\\])(?:~|[A-Za-z]:)?[/\\](?:[^\s'\"/\\:;,()<>]+[/\\])+(?=[^\s'\"/\\:;,()<>]|$)")
SHORTENED = ("data.root", "model.weights")


def shown_folder(folder: Path) -> str:
    """As it is called from here; by its last name where it lies elsewhere."""
    absolute, here = folder.resolve(), Path.cwd()
    return absolute.relative_to(here).as_posix() if here in absolute.parents else absolute.name


def without_places(text: str) -> str:
    """A message in which every path from the root of a disk is cut to its last name.

    >>> without_places("/home/ann/birds/wren.jpg is missing; see 'C:\\\\data\\\\birds.csv' and runs/first")
    "wren.jpg is missing; see 'birds.csv' and runs/first"
    """
    return _PATH.sub("", text)


def configuration_text(tables: Mapping[str, Any]) -> str:
    """A configuration as TOML, files of this machine by their last names."""
    made = {key: dict(value) if isinstance(value, Mapping) else value for key, value in tables.items()}
    cut = []
    for place in SHORTENED:
        table, _, key = place.partition(".")
        value = made.get(table, {}).get(key)
        if isinstance(value, str) and Path(value).is_absolute():
            made[table][key] = Path(value).name
            cut.append(place)
    options = made.get("data", {}).get("options", {})
    if any(isinstance(value, str) and Path(value).is_absolute() for value in options.values()):
        short = {key: Path(v).name if isinstance(v, str) and Path(v).is_absolute() else v for key, v in options.items()}
        made["data"]["options"] = short
        cut.append("data.options")
    told = f"# shortened here to the last name: {', '.join(cut)}\n" if cut else ""
    return told + to_toml(made)


def inside(items: Items, place: int) -> bool:
    """Whether the picture of an item may be shown: it is held in memory, or is a file below the folder of its data."""
    if not isinstance(items, ImageFiles):
        return True
    return items[place].path.resolve().is_relative_to(items.root.resolve())


def item_text(items: Items, place: int) -> str:
    """What an item is called: its file within the data set, or its number."""
    thing = items[place] if isinstance(items, ImageFiles) else None
    if not isinstance(thing, ImageFile):
        return f"#{place}"
    assert isinstance(items, ImageFiles)
    return str(items.paths[place]) if inside(items, place) else f"#{place}"
