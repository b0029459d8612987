"""Tables, lines and progress bars of rich in which names from files are plain text."""

from collections.abc import Iterable
from typing import Any, TextIO

from rich import console
from rich.segment import Segment
from rich.text import Text

from kinfold.cli.terminal import escape


class Console(console.Console):
    """A console that takes no text for markup or emoji, and writes control codes in text as characters.

    The colors and movements of rich itself stay as they are.
    """

    def __init__(self, file: TextIO | None = None) -> None:
        super().__init__(file=file, markup=False, emoji=False, highlight=False)

    def render_str(self, text: str, **options: Any) -> Text:
        """A string as text, escaped before anybody measures how wide it is."""
        return super().render_str(escape(text), **options)

    def render(
        self, renderable: console.RenderableType, options: console.ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """The parts of what is printed, with all text escaped that was no plain string."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=escape(segment.text))
