"""An HTML table for notebooks."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any


def render_html_table(caption: str, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a paragraph and a table; every cell is escaped.

    Args:
        caption: The paragraph above.
        header: The titles of the columns.
        rows: The cells.

    Examples:
        >>> render_html_table("two", ["a"], [["<b>"]])
        '<p>two</p><table><tr><th>a</th></tr><tr><td>&lt;b&gt;</td></tr></table>'
    """
    head = "".join(f"<th>{escape(title)}</th>" for title in header)
    body = "".join(f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows)
    return f"<p>{escape(caption)}</p><table><tr>{head}</tr>{body}</table>"
