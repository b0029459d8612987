"""A data set as commands name it: its name, its root, and `--set data.options...` spelled as a recipe spells it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from kinfold.data import Dataset

Changes = Annotated[
    list[str] | None,
    typer.Option("--set", "-s", help="An option of the data set, as in `data.options.columns.label=species`."),
]


def load(name: str, root: Path | None, changes: list[str] | None, **more: Any) -> "Dataset":
    """The data set, with options from the command line and `more` of them."""
    from kinfold import data
    from kinfold.training.config.parsing import configure

    for change in changes or []:
        if not change.startswith("data.options."):
            raise ValueError(f"--set {change}: only options of the data set can be set here, data.options.NAME=VALUE")
    given = configure({"data": {"name": name}}, changes or [])
    return data.load(name, root, **{**more, **given.data.options})
