"""What the commands that use a run share: which of its classes they take, and what they say about it."""

from pathlib import Path
from typing import TYPE_CHECKING

from kinfold.cli.terminal import echo

if TYPE_CHECKING:
    from kinfold.data import Dataset
    from kinfold.experiments import Repeat
    from kinfold.training import Run

SPLIT_HELP = "Of a run: train, validation or test; left out: test, or validation where there are no test classes "
SPLIT_HELP += "or the run is not finished."


def open_for_use(folder: Path) -> "Run | Repeat":
    """Open a run or a repeat, and say where it is not finished."""
    from kinfold.experiments import open_run

    run = open_run(folder)
    warn_unfinished(run)
    return run


def warn_unfinished(opened: "Run | Repeat") -> None:
    """Say which weights an unfinished run has, and how to finish it."""
    for run in getattr(opened, "runs", [opened]):
        if not run.finished:
            echo(
                f"{run.folder} is not finished: its weights are those of step {run.weights_step}; "
                f"kinfold train --resume {run.folder} continues it",
                err=True,
            )


def select_split(run: "Run | Repeat", split: str | None) -> "tuple[str, Dataset]":
    """Return a split by its name; without one test, validation or train, the first that may be looked at."""
    visible = run.list_visible_splits()
    name = split or next(name for name in ("test", "validation", "train") if name in visible)
    return name, visible[name] if name in visible else run.data(name)  # which raises and says why
