"""`kinfold reproduce`: run a published table again and print our numbers beside the published ones."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from kinfold.cli.terminal import echo

if TYPE_CHECKING:
    from kinfold.papers import ReproductionPlan, SmallScale


def reproduce(
    names: Annotated[
        list[str] | None, typer.Argument(help="Tables, as `dro/table1`; all tables are listed if left out.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every table.")] = False,
    row: Annotated[list[str] | None, typer.Option(help="Only this row; may be repeated.")] = None,
    data: Annotated[list[str] | None, typer.Option(help="Only this data set; may be repeated.")] = None,
    root: Annotated[Path | None, typer.Option(help="The folder with cub, cars, sop, ... in it.")] = None,
    weights: Annotated[
        list[str] | None, typer.Option(help="The published weights: FILE, or BACKBONE=FILE; may be repeated.")
    ] = None,
    scale: Annotated[
        Literal["full", "small"], typer.Option(help="small: on glyphs, or on --features, on any laptop.")
    ] = "full",
    features: Annotated[
        Path | None, typer.Option(help="With --scale small: an .npz of embeddings and labels to run on.")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="With --scale small: number of training steps; 200 if left out.")
    ] = None,
    as_published: Annotated[
        bool, typer.Option(help="Select as the paper did, even where that was on the test classes.")
    ] = False,
    seeds: Annotated[int | None, typer.Option(help="Repeats; as many as in the paper, or 1, if left out.")] = None,
    methods: Annotated[
        str | None, typer.Option(help="Rows or lines of the figures, separated by commas; all if left out.")
    ] = None,
    trials: Annotated[int, typer.Option(help="Trials of a search over what the authors tuned.")] = 0,
    jobs: Annotated[int | None, typer.Option(help="Runs at a time; one for each core if left out.")] = None,
    threads: Annotated[int, typer.Option(help="Threads of each run.")] = 1,
    timeout: Annotated[
        float | None, typer.Option(help="Seconds without progress after which a run is ended and tried again.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Output folder; bench/NAME if left out.")] = None,
    changes: Annotated[
        list[str] | None, typer.Option("--set", "-s", help="Another value for all rows, as in `training.steps=50`.")
    ] = None,
    dry_run: Annotated[bool, typer.Option(help="Print what would run and what it needs, and stop.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Run a published table again and print our numbers beside it, with known errors and omissions of the paper.

    Example: `kinfold reproduce dro/table1 --row dro-topk-margin --scale small`

    In full: `kinfold reproduce dro/table1 --root data --weights bn_inception-52deb4733.pth`
    """
    from kinfold.papers import PlanOptions, list_tables, parse_weights, plan_tables
    from kinfold.report.reproduction.selection import check_methods

    if not names and not everything:
        _print_tables(as_json)
        return
    chosen = list_tables() if everything else [*dict.fromkeys(names or [])]
    options = PlanOptions(
        rows=tuple(row or ()),
        data=tuple(data or ()),
        root=root,
        weights=parse_weights(weights or []),
        as_published=as_published,
        seeds=seeds,
        trials=trials,
        changes=tuple(changes or ()),
        small=_create_small_scale(scale, features, steps),
    )
    plans = plan_tables(chosen, options)
    if dry_run:
        _print_plans(plans, as_json)
        return
    for plan in plans:
        plan.check_ready()
    count = len(os.sched_getaffinity(0)) if jobs is None else jobs
    if out is not None and out.is_file():
        raise ValueError(f"--out is a folder, and {out} is a file")
    folders = [_choose_folder(plan.table.name, out, len(plans), scale) for plan in plans]
    index = None if len(plans) == 1 else _choose_index(out, scale)
    shown = [] if methods is None else [name.strip() for name in methods.split(",") if name.strip()]
    for plan in plans:
        check_methods(plan.table.rows, shown)
    if not _run_plans(plans, folders, index, count, threads, timeout, as_json, shown):
        raise typer.Exit(1)


def _create_small_scale(scale: str, features: Path | None, steps: int | None) -> "SmallScale | None":
    from kinfold.papers import SmallScale
    from kinfold.papers.small_scale import STEPS

    if scale == "small":
        return SmallScale(STEPS if steps is None else steps, features)
    for option, value in (("--features", features), ("--steps", steps)):
        if value is not None:
            raise ValueError(f"{option} is for --scale small; at full scale --set training.steps=... changes steps")
    return None


def _run_plans(
    plans: "list[ReproductionPlan]",
    folders: list[Path],
    index_path: Path | None,
    jobs: int,
    threads: int,
    timeout: float | None,
    as_json: bool,
    methods: list[str],
) -> bool:
    """Run the plans, print and draw every reproduction. Return whether all rows succeeded."""
    from kinfold.cli.bench_progress import show_bench_progress
    from kinfold.experiments import Interrupted, Processes
    from kinfold.experiments.workers.kept import KeptWorkers
    from kinfold.experiments.workers.processes import check_workers
    from kinfold.papers.comparison import format_report, to_dictionary, write_report
    from kinfold.papers.reproduce import reproduce_table
    from kinfold.report.reproduction import ReproductionIndex, write_reproduction

    check_workers(jobs, threads, timeout)
    documents, succeeded = [], True
    index = None if index_path is None else ReproductionIndex(plans, folders, index_path)
    log = (folders[0] if index_path is None else index_path.parent) / "log.txt"
    log.parent.mkdir(parents=True, exist_ok=True)
    try:
        with (
            show_bench_progress(enabled=not as_json) as watch,
            KeptWorkers(Processes(jobs, threads, log, timeout)) as workers,
        ):
            for plan, folder in zip(plans, folders, strict=True):
                for reproduction in reproduce_table(
                    plan, folder, lambda _: workers, watch=watch, jobs=jobs, threads=threads
                ):
                    path = write_report(reproduction, folder / reproduction.data)
                    documents.append(to_dictionary(reproduction))
                    succeeded = succeeded and not reproduction.failed
                    page, *figures = write_reproduction(reproduction, folder / reproduction.data, methods)
                    if index is not None:
                        index.add(reproduction)
                    if not as_json:
                        echo(f"{format_report(reproduction)}\n{path}\n{page}\n{figures[0].parent if figures else ''}\n")
    except Interrupted:
        echo("interrupted, everything is saved; the same command continues", err=True)
        raise typer.Exit(130) from None
    if as_json:
        echo(json.dumps(documents, indent=2))
    elif index is not None:
        echo(str(index.path))
    return succeeded


def _choose_folder(name: str, out: Path | None, count: int, scale: str) -> Path:
    if out is not None:
        return out if count == 1 else out / name
    # results of different scales are not comparable
    return Path("bench") / (name if scale == "full" else f"{name}-small")


def _choose_index(out: Path | None, scale: str) -> Path:
    """The page over several tables."""
    if out is not None:
        return out / "index.html"
    return Path("bench") / ("index.html" if scale == "full" else "index-small.html")


def _print_tables(as_json: bool) -> None:
    from kinfold.papers import list_tables, load_table

    tables = [load_table(name) for name in list_tables()]
    if as_json:
        rows = [{"name": t.name, "title": t.title, "source": t.source, "paper": t.paper} for t in tables]
        echo(json.dumps(rows, indent=2))
        return
    width = max(len(table.name) for table in tables)
    for table in tables:
        echo(f"{table.name:<{width}}  {table.title} ({table.source})")


def _print_plans(plans: "list[ReproductionPlan]", as_json: bool) -> None:
    from kinfold.papers.outline import format_plan, list_planned_rows

    if as_json:
        echo(json.dumps([row for plan in plans for row in list_planned_rows(plan)], indent=2))
        return
    for plan in plans:
        echo(format_plan(plan) + "\n")
