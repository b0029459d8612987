"""Progress of `kinfold bench` and `kinfold reproduce` on the error stream: bars in a terminal, else lines."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, Progress, TextColumn

from kinfold.cli.console import Console
from kinfold.cli.progress import format_duration
from kinfold.cli.terminal import echo

if TYPE_CHECKING:
    from kinfold.experiments import BenchState
    from kinfold.experiments.runner import ProgressCallback
    from kinfold.experiments.workers.tasks import TaskResult


@contextmanager
def show_bench_progress(enabled: bool = True) -> Iterator["ProgressCallback | None"]:
    """Yield a callback of `run_bench`: a bar for all runs and one for each running one, or a line for each result.

    Args:
        enabled: Whether anything is shown; the callback is None otherwise.
    """
    console = Console(file=sys.stderr)
    if not enabled:
        yield None
        return
    if not console.is_terminal:
        yield _print_result
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[state]}", markup=False),
    )
    with Progress(*columns, console=console, transient=True) as bars:
        total_bar = bars.add_task("runs", total=1.0, state="")
        run_bars: dict[str, Any] = {}

        def update(state: "BenchState", result: "TaskResult | None") -> None:
            bars.update(total_bar, total=state.total, completed=state.fraction_sum, state=_describe_state(state))
            for name in [*run_bars]:
                if name not in state.running:
                    bars.remove_task(run_bars.pop(name))
            for name, fraction in state.running.items():
                if name not in run_bars:
                    run_bars[name] = bars.add_task(name, total=1.0, state="")
                bars.update(run_bars[name], completed=fraction)
            if result is not None and result.error:
                text = f"{_describe_verdict(state, result)}: {result.name}: {result.error}"
                bars.console.print(text, markup=False, highlight=False)

        yield update


def _print_result(state: "BenchState", result: "TaskResult | None") -> None:
    if result is not None:
        verdict = f"{_describe_verdict(state, result)}: {result.error}" if result.error else f"{result.seconds:.1f} s"
        echo(f"{_describe_state(state)}: {result.name}, {verdict}", err=True)


def _describe_verdict(state: "BenchState", result: "TaskResult") -> str:
    return "failed" if result.name in state.failed else "tried again"


def _describe_state(state: "BenchState") -> str:
    left = "" if state.seconds_left is None else f", {format_duration(state.seconds_left)} left"
    failed = f", {len(state.failed)} failed" if state.failed else ""
    return f"{state.completed}/{state.total}{failed}{left}"
