"""Which names of files a report may show: those inside the run and its data, nothing of the machine around them."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeGuard

from kinfold.data import ImageFiles
from kinfold.data.items import Items, Rows
from kinfold.training.config.parsing import to_toml

# one folder or more, then another name: "/home/ann/birds.csv", "C:\data\birds.csv"
_FOLDERS = re.compile(r"(?<![\w.~/\\])(?:~|[A-Za-z]:)?[/\\](?:[^\s'\"/\\:;,()<>]+[/\\])+(?=[^\s'\"/\\:;,()<>]|$)")
_PATH_KEYS = ("data.root", "model.weights")


def display_folder(folder: Path) -> str:
    """Return a folder relative to the working directory, or only its last name if it lies elsewhere."""
    absolute, here = folder.resolve(), Path.cwd()
    return absolute.relative_to(here).as_posix() if here in absolute.parents else absolute.name


def redact_paths(text: str) -> str:
    """Shorten every absolute path of a message to its last name.

    Examples:
        >>> redact_paths("/home/ann/birds/wren.jpg is missing; see 'C:\\\\data\\\\birds.csv' and runs/first")
        "wren.jpg is missing; see 'birds.csv' and runs/first"
    """
    return _FOLDERS.sub("", text)


def redact_config(tables: Mapping[str, Any]) -> str:
    """Return a configuration as TOML, with absolute paths shortened to their last names."""
    config = {key: dict(value) if isinstance(value, Mapping) else value for key, value in tables.items()}
    shortened = []
    for key in _PATH_KEYS:
        table, _, name = key.partition(".")
        value = config.get(table, {}).get(name)
        if _is_absolute(value):
            config[table][name] = Path(value).name
            shortened.append(key)
    options = config.get("data", {}).get("options", {})
    if any(map(_is_absolute, options.values())):
        short = {key: Path(value).name if _is_absolute(value) else value for key, value in options.items()}
        config["data"]["options"] = short
        shortened.append("data.options")
    comment = f"# shortened here to the last name: {', '.join(shortened)}\n" if shortened else ""
    return comment + to_toml(config)


def _is_absolute(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and Path(value).is_absolute()


def is_inside(items: Items, index: int) -> bool:
    """Return whether an image may be shown: it is in memory, or its file is below the folder of its dataset."""
    if not isinstance(items, ImageFiles):
        return True
    return items[index].path.resolve().is_relative_to(items.root.resolve())


def name_item(items: Items, index: int) -> str:
    """Return the file of an item relative to its dataset, or its number."""
    files = items.pictures if isinstance(items, Rows) else items
    return str(files.paths[index]) if isinstance(files, ImageFiles) and is_inside(files, index) else f"#{index}"
