"""`kinfold reproduce`: a table of a paper run again, ours beside the published numbers."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from kinfold.cli.bench import watching
from kinfold.cli.terminal import echo

if TYPE_CHECKING:
    from kinfold.papers.plan import Plan, PlanOptions


def reproduce(
    names: Annotated[
        list[str] | None, typer.Argument(help="Tables, as `dro/table1`; without one they are listed.")
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
    steps: Annotated[int | None, typer.Option(help="With --scale small: how long; 200 unless given.")] = None,
    as_published: Annotated[
        bool, typer.Option(help="Select as the paper did, even where that was on the test classes.")
    ] = False,
    seeds: Annotated[int | None, typer.Option(help="Repeats; as many as the paper's, else 1.")] = None,
    trials: Annotated[int, typer.Option(help="Trials of a search in what a row was tuned over.")] = 0,
    jobs: Annotated[int | None, typer.Option(help="Trainings at a time; one for each core unless given.")] = None,
    threads: Annotated[int, typer.Option(help="Threads of each.")] = 1,
    timeout: Annotated[
        float | None, typer.Option(help="Seconds without progress after which a training is ended and tried again.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The folder; else bench/NAME.")] = None,
    changes: Annotated[
        list[str] | None, typer.Option("--set", "-s", help="Another value for all rows, as in `training.steps=50`.")
    ] = None,
    dry_run: Annotated[bool, typer.Option(help="Print what would run and what it needs, and stop.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Run a published table again and print ours beside it, with what is known to be wrong or unstated there.

    Example: `kinfold reproduce dro/table1 --row dro-topk-margin --scale small`

    In full: `kinfold reproduce dro/table1 --root data --weights bn_inception-52deb4733.pth`
    """
    from kinfold.papers import published

    if not names and not everything:
        _list_tables(as_json)
        return
    chosen = published.list_tables() if everything else [*dict.fromkeys(names or [])]
    if row and len(chosen) > 1:
        raise ValueError("--row chooses rows of one table: give the name of just that one")
    choices = _choices(row, data, root, weights, scale, features, steps, as_published, seeds, trials, changes)
    plans = _plans(chosen, choices)
    if dry_run:
        _show(plans, as_json)
        return
    for plan in plans:
        plan.require()
    count = len(os.sched_getaffinity(0)) if jobs is None else jobs
    if not _run(plans, out, scale, count, threads, timeout, as_json):
        raise typer.Exit(1)


def _choices(
    row: list[str] | None,
    data: list[str] | None,
    root: Path | None,
    weights: list[str] | None,
    scale: str,
    features: Path | None,
    steps: int | None,
    as_published: bool,
    seeds: int | None,
    trials: int,
    changes: list[str] | None,
) -> "PlanOptions":
    from kinfold.papers.plan import PlanOptions
    from kinfold.papers.small_scale import STEPS, SmallScale

    if scale != "small":
        for option, value in (("--features", features), ("--steps", steps)):
            if value is not None:
                raise ValueError(f"{option} is for --scale small; at full scale --set training.steps=... changes steps")
    return PlanOptions(
        tuple(row or ()),
        tuple(data or ()),
        root,
        _files(weights or []),
        as_published,
        seeds,
        trials,
        tuple(changes or ()),
        SmallScale(STEPS if steps is None else steps, features) if scale == "small" else None,
    )


def _files(given: list[str]) -> dict[str, Path]:
    """FILE, or BACKBONE=FILE; a name that has "=" in it for other reasons is a file."""
    from kinfold import registry
    from kinfold.papers.plan import ANY

    known = registry.names("backbones")
    found = {}
    for entry in given:
        backbone, equals, file = entry.partition("=")
        named = bool(equals) and backbone.partition("/")[0] in known
        found[backbone if named else ANY] = Path(file if named else entry)
    return found


def _plans(names: list[str], choices: "PlanOptions") -> list["Plan"]:
    """With --data, tables on other data are left out where there are several."""
    from dataclasses import replace

    from kinfold.papers import published
    from kinfold.papers.plan import plan

    found = []
    for name in names:
        table = published.load_table(name)
        if len(names) > 1 and choices.data:
            shared = tuple(data for data in choices.data if data in table.data)
            if not shared:
                continue
            found.append(plan(table, replace(choices, data=shared)))
        else:
            found.append(plan(table, choices))
    if not found:
        raise ValueError(f"none of these tables is on {', '.join(choices.data)}")
    if choices.trials and not any(each.trials for each in found):
        raise ValueError(
            f"--trials {choices.trials}: none of these rows says what its authors tuned (a table `search`); leave out "
            "--trials, or choose rows that have one: --dry-run --json shows it"
        )
    return found


def _run(
    plans: list["Plan"],
    out: Path | None,
    scale: str,
    jobs: int,
    threads: int,
    timeout: float | None,
    as_json: bool,
) -> bool:
    """Whether every row came to something."""
    from kinfold.experiments import Interrupted, Processes
    from kinfold.experiments.workers.processes import check_workers
    from kinfold.files.atomic import write_text
    from kinfold.files.documents import write_result
    from kinfold.papers.comparison import format_report, to_dictionary
    from kinfold.papers.reproduce import reproduce as run

    check_workers(jobs, threads, timeout)
    whole, good = [], True
    try:
        with watching(enabled=not as_json) as watch:
            for plan in plans:
                folder = _folder(plan.table.name, out, len(plans), scale)
                for found in run(
                    plan,
                    folder,
                    lambda place: Processes(jobs, threads, place.log, timeout),
                    watch=watch,
                    jobs=jobs,
                    threads=threads,
                ):
                    place = folder / found.data
                    place.mkdir(parents=True, exist_ok=True)
                    write_text(place / "published.md", format_report(found, "markdown") + "\n", place)
                    write_result(place / "published.json", to_dictionary(found), place)
                    whole.append(to_dictionary(found))
                    good = good and not found.failed
                    if not as_json:
                        echo(format_report(found) + f"\n{place / 'published.md'}\n")
    except Interrupted:
        echo("interrupted, everything is saved; the same command goes on where it was", err=True)
        raise typer.Exit(130) from None
    if as_json:
        echo(json.dumps(whole, indent=2))
    return good


def _folder(name: str, out: Path | None, count: int, scale: str) -> Path:
    if out is not None:
        return out if count == 1 else out / name
    # numbers of different scales have nothing to do with each other
    return Path("bench") / (name if scale == "full" else f"{name}-small")


def _list_tables(as_json: bool) -> None:
    from kinfold.papers import published

    tables = [published.load_table(name) for name in published.list_tables()]
    if as_json:
        found = [{"name": t.name, "title": t.title, "source": t.source, "paper": t.paper} for t in tables]
        echo(json.dumps(found, indent=2))
        return
    width = max(len(table.name) for table in tables)
    for table in tables:
        echo(f"{table.name:<{width}}  {table.title} ({table.source})")


def _show(plans: list["Plan"], as_json: bool) -> None:
    from kinfold.papers.outline import describe_plan, describe_tables

    if as_json:
        echo(json.dumps([row for plan in plans for row in describe_plan(plan)], indent=2))
        return
    for plan in plans:
        echo(describe_tables(plan) + "\n")
