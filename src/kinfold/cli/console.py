"""A rich console that prints names from files as plain text."""

from collections.abc import Iterable
from typing import Any, TextIO

from rich import console
from rich.segment import Segment
from rich.text import Text

from kinfold.cli.terminal import escape


class Console(console.Console):
    """A console that interprets no markup or emoji, and escapes control codes in text.

    Colors and cursor movements of rich itself are kept.
    """

    def __init__(self, file: TextIO | None = None) -> None:
        super().__init__(file=file, markup=False, emoji=False, highlight=False)

    def render_str(self, text: str, **options: Any) -> Text:
        """Escape a string before its width is measured."""
        return super().render_str(escape(text), **options)

    def render(
        self, renderable: console.RenderableType, options: console.ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render, and escape text that did not come from a plain string."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=escape(segment.text))
