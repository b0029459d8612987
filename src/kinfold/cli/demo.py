"""`kinfold demo`: several losses on the glyphs, a table and a report in a few minutes."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from kinfold.cli.terminal import echo


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Where the runs, the table and the report go.")] = Path(
        "results/demo"
    ),
    steps: Annotated[int | None, typer.Option(help="Training steps of each run; fewer for a quick look.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Train one small network with four losses and two seeds on characters, and compare on characters it never saw.

    Example: `kinfold demo --out results/demo`

    Stopped, it goes on where it was; finished runs are not made again.
    """
    from kinfold import demo as shown
    from kinfold.cli.demo_progress import Lines
    from kinfold.cli.progress import show_progress
    from kinfold.report import collect_content, write_page
    from kinfold.training.loop.signals import Stopped

    try:
        with show_progress(enabled=not as_json) as bars:
            # without a terminal there are no bars
            tell = bars or (None if as_json else Lines(shown.run_names(), shown.KEPT))
            rows = shown.demo(out, shown.STEPS if steps is None else steps, tell)
            page = write_page(collect_content(out, progress=tell), out / "report.html")
    except Stopped as stopped:
        echo(f"{stopped}, saved; the same command goes on", err=True)
        raise typer.Exit(128 + stopped.signal) from None
    if as_json:
        scores = {row.method: row.scores for row in rows}
        echo(json.dumps({"report": str(page), "scores": scores}, indent=2))
        return
    from rich.table import Table

    from kinfold.cli.console import Console

    table = Table(title=f"characters never seen in training: {shown.SHOWN}")
    table.add_column("method")
    for name in shown.NAMES:
        table.add_column(f"{name}, %", justify="right")
    for row in rows:
        table.add_row(row.method, *shown.cells(row))
    console = Console(file=sys.stdout)
    console.print(table)
    few = "the report gives the same means with 95 % intervals, which two seeds leave far wider than this range"
    console.print(few, highlight=False, soft_wrap=True)
    console.print(f"the table, every score and every run lie in {out}", highlight=False, soft_wrap=True)
    console.print(f"open the report in a browser: {page.resolve()}", highlight=False, soft_wrap=True)
