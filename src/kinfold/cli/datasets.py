"""Load a data set from command-line arguments: name, --root, and --set data.options.NAME=VALUE as in recipes."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from kinfold.data import Dataset

Changes = Annotated[
    list[str] | None,
    typer.Option("--set", "-s", help="Option of the data set, such as `data.options.columns.label=species`."),
]


def check_run_or_data(path: Path) -> None:
    """Raise a ValueError that says how to read a folder or file which was given in place of a name or of a run."""
    from kinfold.data.labeled import find_reader

    if not (path / "configuration.toml").exists() and not (path / "runs").is_dir():
        reader = find_reader(path)
        raise ValueError(f"{path} is data: give the name of its reader and the path, {reader} --root {path}")


def check_name(name: str) -> None:
    """Raise a ValueError where a path was given in place of the name of a dataset."""
    from kinfold import registry

    if name not in registry.names("datasets") and Path(name).exists():
        check_run_or_data(Path(name))


def load(name: str, root: Path | None, changes: list[str] | None, **defaults: Any) -> "Dataset":
    """Load a data set with the options of the command line, which override `defaults`."""
    from kinfold import data
    from kinfold.training.config.parsing import configure

    check_name(name)
    for change in changes or []:
        if not change.startswith("data.options."):
            raise ValueError(f"--set {change}: only options of the data set can be set here, data.options.NAME=VALUE")
    config = configure({"data": {"name": name}}, changes or [])
    return data.load(name, root, **{**defaults, **config.data.options})
