"""`kinfold bench`: methods x data x folds x seeds, with everything kept and the test classes opened last."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kinfold.cli.plugins import Plugins, format_plugins
from kinfold.cli.terminal import echo

if TYPE_CHECKING:
    from kinfold.experiments import Bench, State
    from kinfold.experiments.bench import Watch
    from kinfold.experiments.workers.tasks import TaskResult


def bench(
    suite: Annotated[Path | None, typer.Argument(help="A .toml file; see the documentation of bench.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The folder; else bench/NAME.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with the bench in this folder.")] = None,
    changes: Annotated[
        list[str] | None, typer.Option("--set", "-s", help="Another value in the base, as in `training.steps=50`.")
    ] = None,
    root: Annotated[
        list[str] | None, typer.Option(help="Where a data set lies, as in `cub=photos/cub`; may be repeated.")
    ] = None,
    jobs: Annotated[int | None, typer.Option(help="Cells at a time; one for each core unless given.")] = None,
    threads: Annotated[int, typer.Option(help="Threads of each.")] = 1,
    timeout: Annotated[
        float | None, typer.Option(help="Seconds without progress after which a cell is ended and tried again.")
    ] = None,
    storage: Annotated[
        str | None, typer.Option(help="A data base of Optuna for the search, as in `postgresql://...`.")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option(help="Run the cells on a Ray cluster: its address, `auto`, or `local`.")
    ] = None,
    dry_run: Annotated[bool, typer.Option(help="Print the cells and stop.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    plugin: Plugins = None,
) -> None:
    """Compare methods fairly: the same data, budgets, folds and seeds, intervals over repeats, corrected comparisons.

    Example: `kinfold bench suite.toml --out bench/birds --jobs 2`

    Stopped or killed, it goes on where it was when it is started again. A cell whose process is killed is tried again
    at once. A cell that fails does not stop the others; it is tried again at the next start (exit code 1 where any
    failed).
    """
    from kinfold.experiments import Bench, Interrupted, run_bench
    from kinfold.experiments.bench import check_names

    given = _suite(suite, resume, changes or [], _roots(root or []))
    folder = resume or out or Path("bench") / given.name
    check_names(given)
    if dry_run:
        _show_plan(given, as_json)
        return
    count = len(os.sched_getaffinity(0)) if jobs is None else jobs
    try:
        with watching(enabled=not as_json) as watch:
            state = run_bench(
                given, folder, _workers(cluster, count, threads, timeout), storage=storage, watch=watch, jobs=count
            )
    except Interrupted:
        on = f"kinfold bench --resume {folder}{format_plugins(plugin)}"
        echo(f"interrupted, everything is saved; go on with: {on}", err=True)
        raise typer.Exit(130) from None
    done = Bench.open(folder, storage)
    done.write()
    if as_json:
        echo(json.dumps(as_dictionary(done), indent=2))
    else:
        echo(done.summary(), nl=False)
        written = (done.place.results, done.place.parquet, done.place.table)
        echo(f"{folder}: {', '.join(path.name for path in written if path.is_file())}")
    for name, why in state.failed.items():
        echo(f"failed: {name}: {why}", err=True)
    if state.failed:
        raise typer.Exit(1)


def as_dictionary(bench: "Bench") -> dict[str, Any]:
    """Means, intervals and comparisons, for programs."""
    from kinfold.files.documents import nan_to_null

    found = []
    for data in bench.suite.sources:
        for result in bench.results:
            for metric in bench.metrics(data):
                compared = bench.compared(data, result, metric)
                if compared is None:
                    continue
                found.append(
                    {
                        "data": data,
                        "result": result,
                        "metric": metric,
                        "best": compared.best,
                        "real": compared.real,
                        "not_compared": bench.untrained(data),
                        "methods": {
                            name: {**vars(entry), **start_and_gain(bench, data, result, metric, name)}
                            for name, entry in compared.intervals.items()
                        },
                        "comparisons": [row._asdict() for row in compared.rows],
                    }
                )
    about: dict[str, Any] = {
        "folder": str(bench.place.path),
        "protocol": bench.suite.protocol,
        "seeds": bench.suite.seeds,
    }
    about["searches"] = [
        {"data": data, "method": method, **asdict(budget)} for (data, method), budget in bench.searches.items()
    ]
    whole: dict[str, Any] = nan_to_null(
        {**about, "inflated": bench.inflated, "failed": bench.failures, "results": found}
    )
    return whole


def start_and_gain(bench: "Bench", data: str, result: str, metric: str, method: str) -> dict[str, Any]:
    """Mean and interval of the start and of the gain over it; None where a bench was made without them."""
    from kinfold.experiments import compute_interval

    found: dict[str, Any] = {}
    for column in ("start", "gain"):
        values = bench.values(data, result, metric, column)[method]
        found[column] = vars(compute_interval([*values.values()])) if values else None
    return found


@contextmanager
def watching(enabled: bool = True) -> Iterator["Watch | None"]:
    """A bar with the cells that are being made, or a line for each that is done where nobody watches a terminal."""
    from rich.progress import BarColumn, Progress, TextColumn

    from kinfold.cli.console import Console

    console = Console(file=sys.stderr)
    if not enabled:
        yield None
        return
    if not console.is_terminal:
        yield _tell
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[told]}", markup=False),
    )
    with Progress(*columns, console=console, transient=True) as bars:
        whole = bars.add_task("cells", total=1.0, told="")
        tasks: dict[str, Any] = {}

        def tell(state: "State", outcome: "TaskResult | None") -> None:
            share = state.done + len(state.failed) + sum(state.running.values())
            bars.update(whole, total=state.total, completed=share, told=_told(state))
            for name in [*tasks]:
                if name not in state.running:
                    bars.remove_task(tasks.pop(name))
            for name, part in state.running.items():
                if name not in tasks:
                    tasks[name] = bars.add_task(name, total=1.0, told="")
                bars.update(tasks[name], completed=part)
            if outcome is not None and outcome.error:
                told = f"{_verdict(state, outcome)}: {outcome.name}: {outcome.error}"
                bars.console.print(told, markup=False, highlight=False)

        yield tell


def _tell(state: "State", outcome: "TaskResult | None") -> None:
    if outcome is not None:
        how = f"{_verdict(state, outcome)}: {outcome.error}" if outcome.error else f"{outcome.seconds:.1f} s"
        echo(f"{_told(state)}: {outcome.name}, {how}", err=True)


def _verdict(state: "State", outcome: "TaskResult") -> str:
    return "failed" if outcome.name in state.failed else "tried again"


def _told(state: "State") -> str:
    left = "" if state.left is None else f", {duration(state.left)} left"
    failed = f", {len(state.failed)} failed" if state.failed else ""
    return f"{state.done}/{state.total}{failed}{left}"


def duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{seconds:.0f} s" if seconds < 90 else f"{minutes} min" if minutes < 90 else f"{minutes / 60:.1f} h"


def _suite(suite: Path | None, resume: Path | None, changes: list[str], roots: dict[str, str]) -> Any:
    from kinfold.experiments import Bench, read_suite

    if resume is not None:
        if suite is not None or changes or roots:
            raise ValueError("--resume goes on with a bench as it was begun: give the folder alone")
        return Bench.open(resume).suite
    if suite is None:
        raise ValueError("give a suite, as in `kinfold bench suite.toml`, or --resume FOLDER")
    return read_suite(suite, changes, roots)


def _roots(given: list[str]) -> dict[str, str]:
    for entry in given:
        if "=" not in entry:
            raise ValueError(f"--root looks like cub=photos/cub, got {entry!r}")
    return {name: place for name, _, place in (entry.partition("=") for entry in given)}


def _workers(cluster: str | None, jobs: int, threads: int, timeout: float | None) -> Any:
    from kinfold.experiments import Processes
    from kinfold.experiments.workers.processes import check_workers

    check_workers(jobs, threads, timeout)  # before anything is written
    if cluster is None:
        return lambda place: Processes(jobs, threads, place.log, timeout)
    from kinfold.experiments.workers.ray_cluster import RayCluster

    return lambda place: RayCluster(cluster, jobs, threads, timeout)


def _show_plan(suite: Any, as_json: bool) -> None:
    from kinfold.experiments.schedule import is_searched
    from kinfold.training.config.parsing import to_tables, to_toml

    cells = []
    for data in suite.sources:
        for method in suite.methods:
            trials = suite.trials if is_searched(suite, data, method) else 0
            runs = (trials + len(suite.seeds)) * suite.folds
            configuration = to_tables(suite.configuration(data, method))
            cells.append(
                {"data": data, "method": method, "trials": trials, "runs": runs, "configuration": configuration}
            )
    if as_json:
        echo(json.dumps(cells, indent=2))
        return
    for cell in cells:
        echo(f"# {cell['data']}, {cell['method']}: {cell['runs']} runs, {cell['trials']} trials of a search")
        echo(to_toml(cell["configuration"]))
