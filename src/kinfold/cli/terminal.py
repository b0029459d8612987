"""The one place where commands write text: names from files are shown, never obeyed as control codes."""

import re

import typer

# C0 and C1 control codes but for line breaks and tabs, marks that reverse the direction of text, and halves of
# surrogate pairs, which no terminal can show
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def escape(text: str) -> str:
    """The text with every character that a terminal would obey written as its code.

    >>> escape("wren\\x1b[2J")
    'wren\\\\x1b[2J'
    """
    return _UNSAFE.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


def echo(text: object, *, err: bool = False, nl: bool = True) -> None:
    """Print text and, with `nl`, a line break on the output stream, or on the error stream."""
    typer.echo(escape(str(text)), err=err, nl=nl)
