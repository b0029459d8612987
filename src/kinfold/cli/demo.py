"""`kinfold demo`: compare several losses on glyphs, with a table and a report, in a few minutes."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kinfold.cli.terminal import echo

if TYPE_CHECKING:
    from kinfold.demo import DemoRow


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the runs, the table and the report.")] = Path(
        "results/demo"
    ),
    steps: Annotated[int | None, typer.Option(help="Training steps of each run; fewer for a quick look.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Train a small network with four losses and two seeds on characters, and compare on unseen characters.

    Example: `kinfold demo --out results/demo`

    After a stop, the same command continues; finished runs are not trained again.
    """
    from kinfold.cli.demo_progress import ProgressLines
    from kinfold.cli.progress import show_progress
    from kinfold.demo import REUSED, STEPS, list_run_names, run_demo
    from kinfold.report import collect_content, write_page
    from kinfold.training.loop.signals import Stopped

    try:
        with show_progress(enabled=not as_json) as bars:
            # without a terminal there are no bars
            progress = bars or (None if as_json else ProgressLines(list_run_names(), REUSED))
            rows = run_demo(out, STEPS if steps is None else steps, progress)
            page = write_page(collect_content(out, progress=progress), out / "report.html")
    except Stopped as stopped:
        echo(f"{stopped}, saved; the same command continues", err=True)
        raise typer.Exit(128 + stopped.signal) from None
    if as_json:
        scores = {row.method: row.scores for row in rows}
        echo(json.dumps({"report": str(page), "scores": scores}, indent=2))
    else:
        _print_rows(rows, out, page)


def _print_rows(rows: "list[DemoRow]", out: Path, page: Path) -> None:
    from rich.table import Table

    from kinfold.cli.console import Console
    from kinfold.demo import MEAN_AND_RANGE, METRICS, format_scores

    table = Table(title=f"characters not seen in training: {MEAN_AND_RANGE}")
    table.add_column("method")
    for name in METRICS:
        table.add_column(f"{name}, %", justify="right")
    for row in rows:
        table.add_row(row.method, *format_scores(row))
    console = Console(file=sys.stdout)
    console.print(table)
    for line in (
        "the report has the same means with 95 % intervals, which with two seeds are much wider than this range",
        f"the table, every score and every run are in {out}",
        f"open the report in a browser: {page.resolve()}",
    ):
        console.print(line, highlight=False, soft_wrap=True)
