"""Print to the terminal: every command prints through this module, which escapes control codes."""

import os
import re
import sys

import typer

# C0 and C1 control codes except line breaks and tabs, marks that reverse the direction of text, and halves of
# surrogate pairs, which no terminal can show
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_SUGGESTION = re.compile(r"(?: \(did you mean (.*?)\?\)|\. Did you mean (.*?)\?)(?:; (.*))?$", flags=re.DOTALL)


def escape(text: str) -> str:
    """Replace every character that a terminal would interpret by its escape code.

    Examples:
        >>> escape("wren\\x1b[2J")
        'wren\\\\x1b[2J'
    """
    return _UNSAFE.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


def echo(text: object, *, err: bool = False, nl: bool = True) -> None:
    """Print text and, with `nl`, a line break to the output stream, or to the error stream."""
    typer.echo(escape(str(text)), err=err, nl=nl)


def echo_error(message: str, *hints: str) -> None:
    """Print `error: ...` to the error stream, then `help: ...` for a suggestion in the message and for each hint.

    `recipe 'glyhps' not found (did you mean 'glyphs'?); kinfold list recipes shows all` becomes

        error: recipe 'glyhps' not found
        help: did you mean 'glyphs'?
        help: kinfold list recipes shows all
    """
    if suggestion := _SUGGESTION.search(message):
        message = message[: suggestion.start()]
        hints = (f"did you mean {suggestion[1] or suggestion[2]}?", *filter(None, [suggestion[3]]), *hints)
    _echo_labeled("error", typer.colors.RED, message)
    for hint in hints:
        _echo_labeled("help", typer.colors.CYAN, hint)


def _echo_labeled(label: str, color: str, text: str) -> None:
    has_colors = sys.stderr.isatty() and "NO_COLOR" not in os.environ
    shown = typer.style(label, fg=color, bold=True) if has_colors else label
    typer.echo(f"{shown}: {escape(text)}", err=True)
