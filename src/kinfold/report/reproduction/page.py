"""One offline page of a published table: its figures, our numbers beside the published ones, notes and caveats.

The page loads nothing and runs nothing. All text is escaped.
"""

import base64
import hashlib
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path

from kinfold.files.atomic import write_text
from kinfold.papers.comparison import list_footnotes, list_lines
from kinfold.papers.outline import list_caveats
from kinfold.papers.reproduce import Reproduction

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; font-size: 13px; } td, th { padding: .25rem .6rem; border-bottom: 1px solid #ddd; }
td + td, th + th { text-align: right; } figure { margin: 1.2rem 0; } img { max-width: 100%; height: auto; }
.wide { overflow-x: auto; } figcaption { color: #555; font-size: 13px; }
@media (prefers-color-scheme: dark) { body { background: #fff; } }
"""


def write_page(reproduction: Reproduction, images: Mapping[str, bytes], path: Path) -> Path:
    """Write the page.

    Args:
        reproduction: Our numbers.
        images: Title -> PNG file.
        path: The .html file.

    Returns:
        The path.
    """
    table = reproduction.plan.table
    heading, *body = list_lines(reproduction)
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
        f"style-src 'sha256-{digest}'\">",
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(table.name)}</title><style>{STYLE}</style></head><body>",
        f"<h1>{escape(table.title)}</h1>",
        f"<p>{escape(table.name)}, {escape(reproduction.data)}: {escape(table.paper)}, {escape(table.source)}</p>",
        *(_format_figure(title, data) for title, data in images.items()),
        "<h2>Numbers</h2>",
        '<div class="wide"><table><thead>',
        _format_row("th", heading),
        "</thead><tbody>",
        *(_format_row("td", line) for line in body),
        "</tbody></table></div>",
        *_format_list("Notes", [*list_footnotes(reproduction), *reproduction.plan.notes]),
        *_format_list("Caveats", list_caveats(reproduction.plan)),
        "</body></html>\n",
    ]
    write_text(path, "\n".join(parts))
    return path


def _format_figure(title: str, data: bytes) -> str:
    source = f"data:image/png;base64,{base64.b64encode(data).decode()}"
    caption = f"<figcaption>{escape(title)}</figcaption>"
    return f'<figure><img alt="{escape(title)}" src="{source}">{caption}</figure>'


def _format_row(tag: str, cells: Iterable[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"


def _format_list(title: str, lines: Iterable[str]) -> list[str]:
    items = [f"<li>{escape(line)}</li>" for line in lines]
    return [f"<h2>{title}</h2>", "<ul>", *items, "</ul>"] if items else []
