"""A progress bar on the error stream, where somebody is looking."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from kinfold.cli.console import Console
from kinfold.cli.terminal import echo

if TYPE_CHECKING:
    from kinfold.training import Event


@contextmanager
def reporting(enabled: bool = True) -> Iterator[Callable[[str, float], None] | None]:
    """A function (stage, share done), one bar for each stage; None where nobody would see it."""
    console = Console(file=sys.stderr)
    if not enabled or not console.is_terminal:
        yield None
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def tell(stage: str, share: float) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=1.0)
            bars.update(tasks[stage], completed=share)

        yield tell


@contextmanager
def training(enabled: bool = True) -> Iterator[Callable[["Event"], None]]:
    """A callback of a training: a bar with the loss and the latest scores, or a line per evaluation where nobody
    watches a terminal."""
    console = Console(file=sys.stderr)
    if not enabled:
        yield lambda event: None
        return
    if not console.is_terminal:
        yield _tell_evaluations
        return
    columns = (
        TextColumn("training"),
        BarColumn(),
        TextColumn("{task.fields[steps]}"),
        TimeRemainingColumn(compact=True),
        TextColumn("{task.fields[loss]} {task.fields[scores]}", markup=False),
    )
    with Progress(*columns, console=console, transient=True) as bars:
        task = bars.add_task("training", total=None, steps="", loss="", scores="")

        def tell(event: "Event") -> None:
            reached = f"{event.step}/{event.steps}"
            if event.kind == "step":
                bars.update(task, completed=event.step, total=event.steps, steps=reached)
                bars.update(task, loss=f"loss {event.values['loss']:.4g}")
            elif event.kind == "evaluation":
                bars.update(task, completed=event.step, total=event.steps, steps=reached, scores=_scores(event))

        yield tell


def _tell_evaluations(event: "Event") -> None:
    if event.kind == "evaluation":
        echo(f"step {event.step}/{event.steps}: {_scores(event)}", err=True)


def _scores(event: "Event") -> str:
    shown = [f"{name} {value:.4f}" for name, value in event.values.items() if not name.startswith("train ")]
    return f"{event.split}: {', '.join(shown[:1] + shown[-1:] if len(shown) > 2 else shown)}"
