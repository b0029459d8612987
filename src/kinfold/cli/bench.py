"""`kinfold bench`: compare methods on the same data, folds and seeds."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kinfold.cli.plugins import Plugins, format_plugins
from kinfold.cli.terminal import echo

if TYPE_CHECKING:
    from kinfold.experiments import Suite
    from kinfold.experiments.bench_folder import BenchFolder
    from kinfold.experiments.workers import WorkerPool


def bench(
    suite: Annotated[Path | None, typer.Argument(help="A .toml file; see the documentation of bench.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder of the bench; bench/NAME if left out.")
    ] = None,
    resume: Annotated[Path | None, typer.Option(help="Continue the bench in this folder.")] = None,
    changes: Annotated[
        list[str] | None, typer.Option("--set", "-s", help="Another value in the base, as in `training.steps=50`.")
    ] = None,
    root: Annotated[
        list[str] | None, typer.Option(help="Folder or file of a data set, as in `cub=photos/cub`; may be repeated.")
    ] = None,
    losses: Annotated[
        str | None,
        typer.Option(help="Without a suite: losses to compare on the feature file --root, as in margin,triplet."),
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(help="With --losses: time for all runs, which sets the steps.")
    ] = None,
    jobs: Annotated[int | None, typer.Option(help="Runs at a time; one for each core if left out.")] = None,
    threads: Annotated[int, typer.Option(help="Threads of each run.")] = 1,
    timeout: Annotated[
        float | None, typer.Option(help="Seconds without progress after which a run is ended and tried again.")
    ] = None,
    storage: Annotated[
        str | None, typer.Option(help="A database of Optuna for the search, as in `postgresql://...`.")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option(help="Train on a Ray cluster: its address, `auto`, or `local`.")
    ] = None,
    dry_run: Annotated[bool, typer.Option(help="Print the planned runs and stop.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    plugin: Plugins = None,
) -> None:
    """Compare methods with the same data, budgets, folds and seeds; intervals over repeats, corrected paired tests.

    Example: `kinfold bench suite.toml --out bench/birds --jobs 2`

    Without a suite: `kinfold bench --losses margin,multi-similarity --root clip.npz --minutes 30`

    After a stop or a kill, the same command continues. A run whose process is killed is tried again at once. A run that
    fails does not stop the others; the next start tries it again (exit code 1 if any failed).
    """
    from kinfold.cli.bench_progress import show_bench_progress
    from kinfold.experiments import Bench, Interrupted, run_bench
    from kinfold.experiments.runner import check_methods

    count = len(os.sched_getaffinity(0)) if jobs is None else jobs
    if losses is None:
        if minutes is not None:
            raise ValueError("--minutes sets the steps of --losses; a suite has its own training.steps")
        parsed = _read_suite(suite, resume, changes or [], _parse_roots(root or []))
    else:
        if suite is not None or resume is not None or changes:
            raise ValueError("--losses makes a suite of its own: leave the .toml file, --resume and --set out")
        parsed = _make_suite(losses, root or [], minutes, count, out)
    folder = resume or out or Path("bench") / parsed.name
    check_methods(parsed)
    if dry_run:
        _print_plan(parsed, as_json)
        return
    _warn_of_leakage(parsed)
    try:
        with show_bench_progress(enabled=not as_json) as watch:
            workers = _create_workers(cluster, count, threads, timeout)
            state = run_bench(parsed, folder, workers, storage=storage, watch=watch, jobs=count)
    except Interrupted:
        command = f"kinfold bench --resume {folder}{format_plugins(plugin)}"
        echo(f"interrupted, everything is saved; continue with: {command}", err=True)
        raise typer.Exit(130) from None
    finished = Bench.open(folder, storage)
    files = finished.write()
    if as_json:
        echo(json.dumps(finished.to_dictionary(), indent=2))
    else:
        echo(finished.summary(), nl=False)
        echo(f"{folder}: {', '.join(path.name for path in files)}")
    for name, error in state.failed.items():
        echo(f"failed: {name}: {error}", err=True)
    if state.failed:
        raise typer.Exit(1)


def _warn_of_leakage(suite: "Suite") -> None:
    """Say where training items are in the test split that the protocol makes; each test split is looked at once.

    Data that cannot be read or divided are reported by their runs.
    """
    from kinfold.data import load
    from kinfold.data.dropping import drop_items
    from kinfold.data.folds import assign_fold
    from kinfold.experiments.leakage import describe_leakage

    for data in suite.datasets:
        config = suite.build_config(data, next(iter(suite.methods))).data
        checked: set[bytes] = set()
        try:
            dataset = load(config.name, config.root, **config.options)
            dataset = dataset if config.drop is None else drop_items(dataset, config.drop)
            for fold in range(suite.folds):
                divided = assign_fold(dataset, suite.protocol, fold)
                test = (divided.split == "test").tobytes()
                warning = None if test in checked else describe_leakage(divided)
                checked.add(test)
                if warning is not None:
                    echo(f"warning: {warning}", err=True)
        except (ValueError, OSError):
            continue


def _read_suite(suite: Path | None, resume: Path | None, changes: list[str], roots: dict[str, str]) -> "Suite":
    from kinfold.experiments import Bench, read_suite

    if resume is not None:
        if suite is not None or changes or roots:
            raise ValueError("--resume continues a bench with its own suite: give only the folder")
        return Bench.open(resume).suite
    if suite is None:
        raise ValueError("give a suite, as in `kinfold bench suite.toml`, or --resume FOLDER")
    return read_suite(suite, changes, roots)


def _make_suite(losses: str, root: list[str], minutes: float | None, jobs: int, out: Path | None) -> "Suite":
    from kinfold.experiments import Bench
    from kinfold.experiments.loss_suite import make_loss_suite

    if len(root) != 1:
        raise ValueError("--losses compares on one feature file: give it as --root clip.npz")
    folder = out or Path("bench") / f"{Path(root[0]).stem}-losses"
    if (folder / "suite.toml").is_file():
        return Bench.open(folder).suite  # the trial is over: its steps are kept
    return make_loss_suite(root[0], losses.split(","), minutes, jobs=jobs)


def _parse_roots(entries: list[str]) -> dict[str, str]:
    for entry in entries:
        if "=" not in entry:
            raise ValueError(f"--root must look like cub=photos/cub, got {entry!r}")
    return {name: path for name, _, path in (entry.partition("=") for entry in entries)}


def _create_workers(
    cluster: str | None, jobs: int, threads: int, timeout: float | None
) -> "Callable[[BenchFolder], WorkerPool]":
    from kinfold.experiments import Processes
    from kinfold.experiments.workers.processes import check_workers

    check_workers(jobs, threads, timeout)  # before anything is written
    if cluster is None:
        return lambda bench_folder: Processes(jobs, threads, bench_folder.log, timeout)
    from kinfold.experiments.workers.ray_cluster import RayCluster

    return lambda bench_folder: RayCluster(cluster, jobs, threads, timeout)


def _print_plan(suite: "Suite", as_json: bool) -> None:
    from kinfold.experiments.schedule import list_planned_runs
    from kinfold.training.config.parsing import to_toml

    planned = list_planned_runs(suite)
    if as_json:
        echo(json.dumps(planned, indent=2))
        return
    for entry in planned:
        echo(f"# {entry['data']}, {entry['method']}: {entry['runs']} runs, {entry['trials']} trials of a search")
        echo(to_toml(entry["configuration"]))
