"""Progress bars on the error stream, if it is a terminal."""

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
def show_progress(enabled: bool = True) -> Iterator[Callable[[str, float], None] | None]:
    """Yield a callback (stage, fraction complete) that draws one bar per stage; None if there is no terminal."""
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

        def update(stage: str, fraction: float) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=1.0)
            bars.update(tasks[stage], completed=fraction)

        yield update


@contextmanager
def show_training(enabled: bool = True) -> Iterator[Callable[["Event"], None]]:
    """Yield a training callback that shows loss and scores: a bar on a terminal, else one line per evaluation."""
    console = Console(file=sys.stderr)
    if not enabled:
        yield lambda event: None
        return
    if not console.is_terminal:
        yield _echo_evaluation
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

        def update(event: "Event") -> None:
            steps = f"{event.step}/{event.steps}"
            if event.kind == "step":
                bars.update(task, completed=event.step, total=event.steps, steps=steps)
                bars.update(task, loss=f"loss {event.values['loss']:.4g}")
            elif event.kind == "evaluation":
                bars.update(task, completed=event.step, total=event.steps, steps=steps, scores=_format_scores(event))

        yield update


def _echo_evaluation(event: "Event") -> None:
    if event.kind == "evaluation":
        echo(f"step {event.step}/{event.steps}: {_format_scores(event)}", err=True)


def _format_scores(event: "Event") -> str:
    scores = [f"{name} {value:.4f}" for name, value in event.values.items() if not name.startswith("train ")]
    return f"{event.split}: {', '.join(scores[:1] + scores[-1:] if len(scores) > 2 else scores)}"
