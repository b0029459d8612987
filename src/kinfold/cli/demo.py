"""`kinfold demo`: compare losses on glyphs, then search, choose a threshold and write a page."""

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from kinfold.cli.terminal import echo


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the runs, the tables and the report.")] = Path(
        "results/demo"
    ),
    steps: Annotated[int | None, typer.Option(help="Training steps of each run; fewer for a quick look.")] = None,
    jobs: Annotated[int | None, typer.Option(help="Runs at a time; one for each core if left out.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Train a small network with four losses and three seeds on characters, compare on unseen characters, and use it.

    Example: `kinfold demo --out results/demo`

    After a stop, the same command continues; finished runs are not trained again.
    """
    from kinfold.cli.bench_progress import show_bench_progress
    from kinfold.demo import MAP_POINTS, build_suite, run_demo
    from kinfold.experiments import Interrupted
    from kinfold.report import collect_content, write_page

    count = len(os.sched_getaffinity(0)) if jobs is None else jobs
    try:
        with show_bench_progress(enabled=not as_json) as watch:
            result = run_demo(out, build_suite(steps), jobs=count, watch=watch)
    except Interrupted:
        echo("interrupted, everything is saved; the same command continues", err=True)
        raise typer.Exit(130) from None
    page = write_page(collect_content(out, MAP_POINTS), out / "report.html")
    if as_json:
        facts = {"report": str(page), "best": result.best, "pixels": result.pixels}
        calibration = result.calibration.to_dict()
        echo(json.dumps({**facts, "calibration": calibration, "bench": result.bench.to_dictionary()}, indent=2))
        return
    folder = result.run.folder
    for title, command, text in (
        ("Compare", f"kinfold bench --resume {out}", result.describe_comparison()),
        ("Search", f"kinfold search {folder} '#{result.neighbors.query.index}'", result.describe_search()),
        ("Threshold", f"kinfold calibrate {folder}", "\n".join(result.calibration.describe())),
        ("Look", f"kinfold report {out}", f"open in a browser: {page.resolve()}"),
    ):
        echo(f"\n{title}  ({command})\n{text}")
