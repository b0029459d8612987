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


def load(name: str, root: Path | None, changes: list[str] | None, **defaults: Any) -> "Dataset":
    """Load a data set with the options of the command line, which override `defaults`."""
    from kinfold import data
    from kinfold.training.config.parsing import configure

    for change in changes or []:
        if not change.startswith("data.options."):
            raise ValueError(f"--set {change}: only options of the data set can be set here, data.options.NAME=VALUE")
    config = configure({"data": {"name": name}}, changes or [])
    return data.load(name, root, **{**defaults, **config.data.options})
