"""The command `kinfold` and its exit codes: 0 done, 1 failed, 2 wrong input, 130 interrupted, 143 terminated."""

import sys
import warnings
from typing import Annotated, Any

import typer

import kinfold
from kinfold.cli import data
from kinfold.cli.bench import bench
from kinfold.cli.demo import demo
from kinfold.cli.doctor import doctor
from kinfold.cli.embed import embed
from kinfold.cli.evaluate import evaluate
from kinfold.cli.export import export
from kinfold.cli.listing import listing
from kinfold.cli.report import report
from kinfold.cli.reproduce import reproduce
from kinfold.cli.search import search
from kinfold.cli.terminal import echo
from kinfold.cli.train import train

app = typer.Typer(
    name="kinfold",
    help="Learn an embedding in which things of one kind lie together, and measure how well that works.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.command("demo")(demo)
app.command("train")(train)
app.command("evaluate")(evaluate)
app.command("bench")(bench)
app.command("reproduce")(reproduce)
app.command("embed")(embed)
app.add_typer(data.app, name="data")
app.command("search")(search)
app.command("export")(export)
app.command("report")(report)
app.command("list")(listing)
app.command("doctor")(doctor)


@app.callback(invoke_without_command=True)
def _options(version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False) -> None:
    if version:
        echo(f"kinfold {kinfold.__version__}")
        raise typer.Exit


def _format_warning(message: Warning | str, *_: Any, **__: Any) -> str:
    """One line, without the place in the code that a user of the command does not look at."""
    return f"warning: {message}\n"


def main() -> None:
    """Run, and turn an error of the user's into one line that says how to mend it."""
    warnings.formatwarning = _format_warning
    try:
        app()
    except (ValueError, OSError, ImportError) as wrong:
        echo(f"error: {wrong}", err=True)
        sys.exit(2)
    except KeyboardInterrupt:
        echo("interrupted", err=True)
        sys.exit(130)
