"""Progress bars on the error stream, if it is a terminal."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from kinfold.cli.console import Console
from kinfold.cli.terminal import echo

LINE_SECONDS = 10.0  # between two lines where there is no terminal

if TYPE_CHECKING:
    from kinfold.training import Event


@contextmanager
def show_progress(enabled: bool = True, lines: bool = False) -> Iterator[Callable[[str, float], None] | None]:
    """Yield a callback (stage, fraction complete) that draws one bar per stage.

    What a stage has in parentheses, such as the time that is left, may change from call to call.

    Args:
        enabled: Whether anything is shown; the callback is None otherwise.
        lines: Without a terminal, print a line from time to time, for log files; otherwise the callback is None there.
    """
    console = Console(file=sys.stderr)
    if not enabled or not console.is_terminal:
        yield _ProgressLines() if enabled and lines else None
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
            name = stage.partition(" (")[0]
            if name not in tasks:
                tasks[name] = bars.add_task(stage, total=1.0)
            bars.update(tasks[name], completed=fraction, description=stage)

        yield update


class _ProgressLines:
    """Prints at most one line in `LINE_SECONDS` for each stage, with the time that is left."""

    def __init__(self) -> None:
        self._starts: dict[str, tuple[float, float]] = {}
        self._printed = time.monotonic()

    def __call__(self, stage: str, fraction: float) -> None:
        now = time.monotonic()
        begin, first = self._starts.setdefault(stage.partition(" (")[0], (now, fraction))
        if now - self._printed < LINE_SECONDS or fraction >= 1:
            return
        self._printed = now
        left = ""
        if fraction > first:
            left = f", {format_duration((now - begin) * (1 - fraction) / (fraction - first))} left"
        echo(f"{stage}: {100 * fraction:.0f} %{left}", err=True)


def format_duration(seconds: float) -> str:
    """Return a rounded duration.

    Examples:
        >>> [format_duration(seconds) for seconds in (0.25, 42, 130, 9000)]
        ['0.25 s', '42 s', '2 min', '2.5 h']
    """
    if seconds < 10:
        return f"{seconds:.2g} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


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
            if event.kind == "estimate":
                for line in describe_estimate(event):
                    bars.console.print(line, highlight=False, markup=False)
            elif event.kind == "step":
                bars.update(task, completed=event.step, total=event.steps, steps=steps)
                bars.update(task, loss=f"loss {event.values['loss']:.4g}")
            elif event.kind == "evaluation":
                bars.update(task, completed=event.step, total=event.steps, steps=steps, scores=_format_scores(event))

        yield update


def _echo_evaluation(event: "Event") -> None:
    if event.kind == "estimate":
        for line in describe_estimate(event):
            echo(line, err=True)
    if event.kind == "evaluation":
        echo(f"step {event.step}/{event.steps}: {_format_scores(event)}", err=True)


def describe_estimate(event: "Event") -> list[str]:
    """Say how long a run will take, and what would be faster; all numbers were timed before the first step.

    Args:
        event: An event of the kind "estimate".
    """
    step, run, features = (event.values[name] for name in ("step_seconds", "run_seconds", "features_seconds"))
    lines = [
        f"a step takes {format_duration(step)}, {event.steps:,} steps and their evaluations {format_duration(run)}"
    ]
    for change, share in event.values.items():
        if "=" in change:
            lines.append(f"faster: --set {change} takes {100 * share:.0f} % of the time of a step")
    if run > 120 and features < run / 2:
        lines.append(
            f"faster: features once take {format_duration(features)} (kinfold embed ... --backbone), then kinfold "
            "adapt or kinfold train features trains a head on them in minutes"
        )
    return lines


def _format_scores(event: "Event") -> str:
    scores = [f"{name} {value:.4f}" for name, value in event.values.items() if not name.startswith("train ")]
    return f"{event.split}: {', '.join(scores[:1] + scores[-1:] if len(scores) > 2 else scores)}"
