"""The command `kinfold`. Exit codes: 0 success, 1 failure, 2 invalid input, 130 interrupted, 143 terminated."""

import sys
import warnings
from typing import Annotated, Any

import typer

import kinfold
from kinfold.cli import data, gallery
from kinfold.cli.adapt import adapt
from kinfold.cli.bench import bench
from kinfold.cli.board import board
from kinfold.cli.calibrate import calibrate
from kinfold.cli.check import check
from kinfold.cli.compress import compress
from kinfold.cli.demo import demo
from kinfold.cli.doctor import doctor
from kinfold.cli.embed import embed
from kinfold.cli.evaluate import evaluate
from kinfold.cli.export import export
from kinfold.cli.listing import listing
from kinfold.cli.report import report
from kinfold.cli.reproduce import reproduce
from kinfold.cli.search import search
from kinfold.cli.terminal import echo, echo_error
from kinfold.cli.train import train
from kinfold.cli.upgrade import upgrade
from kinfold.freed_memory import keep_freed_memory

# of click, or of the copy of click that newer versions of typer contain
_UsageError: Any = typer.BadParameter.__bases__[0]

app = typer.Typer(
    name="kinfold",
    help="Deep metric learning: train, evaluate, compare and use embeddings.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    add_completion=True,
)
app.command("demo")(demo)
app.command("train")(train)
app.command("adapt")(adapt)
app.command("evaluate")(evaluate)
app.command("bench")(bench)
app.command("board")(board)
app.command("reproduce")(reproduce)
app.command("embed")(embed)
app.add_typer(data.app, name="data")
app.command("search")(search)
app.add_typer(gallery.app, name="gallery")
app.command("calibrate")(calibrate)
app.command("upgrade")(upgrade)
app.command("export")(export)
app.command("compress")(compress)
app.command("report")(report)
app.command("check")(check)
app.command("list")(listing)
app.command("doctor")(doctor)


@app.callback(invoke_without_command=True)
def _print_version(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        echo(f"kinfold {kinfold.__version__}")
        raise typer.Exit


def _format_warning(message: Warning | str, *_: Any, **__: Any) -> str:
    """One line, without the position in the code."""
    return f"warning: {message}\n"


def _find_setting(option: str) -> str | None:
    """Return the setting of a recipe that an option such as --lr or --batch-size means."""
    from kinfold.training.config.parsing import find_setting

    return find_setting(option.lstrip("-").replace("-", "_"))


def _find_command(arguments: list[str]) -> str:
    """Return the command that was typed, such as "kinfold gallery add"; some errors of typer do not name it."""
    group: Any = typer.main.get_command(app)
    typed = ["kinfold"]
    for argument in arguments:
        group = getattr(group, "commands", {}).get(argument)
        if group is None:
            break
        typed.append(argument)
    return " ".join(typed)


def main() -> None:
    """Run the command line. Errors of the user become `error: ...` and `help: ...` lines instead of a traceback."""
    warnings.formatwarning = _format_warning
    keep_freed_memory()
    try:
        sys.exit(app(standalone_mode=False))
    except _UsageError as error:
        if type(error).__name__ != "NoArgsIsHelpError":  # typer has already printed the help
            message = error.format_message().rstrip(".")
            command = error.ctx.command_path if error.ctx else _find_command(sys.argv[1:])
            hints = [f"`{command} --help` shows all arguments and options"]
            if command.endswith((" train", " bench")) and (setting := _find_setting(getattr(error, "option_name", ""))):
                message = message.partition(" (Possible options")[0]
                hints.insert(0, f"it is a setting of the recipe: --set {setting}=...")
            echo_error(message[:1].lower() + message[1:], *hints)
        sys.exit(2)
    except (ValueError, OSError, ImportError) as error:
        echo_error(str(error))
        sys.exit(2)
    except (typer.Abort, KeyboardInterrupt):
        echo("interrupted", err=True)
        sys.exit(130)
