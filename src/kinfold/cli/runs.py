"""What the commands that use a run have in common: which of its classes they take, and what they say about it."""

from pathlib import Path
from typing import TYPE_CHECKING

from kinfold.cli.terminal import echo

if TYPE_CHECKING:
    from kinfold.data import Dataset
    from kinfold.experiments import Repeat
    from kinfold.training import Run

SPLIT_HELP = "Of a run: train, validation or test; left out: test, or validation where there are no test classes "
SPLIT_HELP += "or the run is not finished."


def used(folder: Path) -> "Run | Repeat":
    """A run or a repeat; where it is not finished it says so, and which weights there are."""
    from kinfold.experiments import open_run

    found = open_run(folder)
    say_unfinished(found)
    return found


def say_unfinished(found: "Run | Repeat") -> None:
    for run in getattr(found, "runs", [found]):
        if not run.finished:
            echo(
                f"{run.folder} is not finished: its weights are those of step {run.weights_step}; "
                f"kinfold train --resume {run.folder} goes on",
                err=True,
            )


def split_of(found: "Run | Repeat", asked: str | None) -> "tuple[str, Dataset]":
    """The split asked for, or the one that tells most."""
    present = found.list_visible_splits()
    name = asked or next(name for name in ("test", "validation", "train") if name in present)
    return name, present[name] if name in present else found.data(name)  # which says why there is none
