"""Docstrings as the reference shows them: doctests as code, and a line that ends early stays a line.

Our docstrings are plain text of 120 columns. A line that the next word would still have fitted on was ended on purpose,
as in formulas and lists of arguments; Markdown would run it together with the next one. Loaded by mkdocs.yml.
"""

import re
from itertools import pairwise
from typing import Any

import griffe

WIDTH = 116  # of a docstring's lines at the depth of a method
_DOCTEST = re.compile(r"^>>> .*\n(?:(?!\s*$).*\n?)*", flags=re.MULTILINE)
_UNDERLINED = re.compile(r"^(\w+)\n-{3,}$", flags=re.MULTILINE)  # would be a heading of the page
_FENCED = re.compile(r"(```.*?```)", flags=re.DOTALL)


def shown(text: str) -> str:
    """The docstring as Markdown.

    >>> shown("F = max\\nover p\\n\\n>>> 1 + 1\\n2")
    'F = max  \\nover p\\n\\n```pycon\\n>>> 1 + 1\\n2\\n```'
    """
    text = _UNDERLINED.sub(r"**\1**", text)
    fenced = _DOCTEST.sub(lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", text)
    parts = _FENCED.split(fenced)
    return "".join(part if part.startswith("```") else _kept_lines(part) for part in parts).strip()


def _kept_lines(text: str) -> str:
    lines = text.split("\n")
    for place, (line, following) in enumerate(pairwise(lines)):
        next_word = following.split(" ")[0] if following.strip() else None
        starts_list = following.lstrip().startswith(("- ", "* "))
        if line.strip() and next_word is not None and not starts_list and len(line) + 1 + len(next_word) <= WIDTH:
            lines[place] = line + "  "
    return "\n".join(lines)


class Docstrings(griffe.Extension):
    """Hands every docstring of the package through `shown`."""

    def on_instance(self, *, obj: Any, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = shown(obj.docstring.value)
