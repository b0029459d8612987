"""A board as one offline page: tables, and for every entry the command, the recipe and the checksums of its files.

The page loads nothing and runs nothing. All text is escaped.
"""

import base64
import hashlib
from html import escape

from kinfold.board.board import Board, Panel
from kinfold.board.entries import BoardEntry
from kinfold.board.tables import COLUMNS, FOOTNOTES, describe_entry, list_methods
from kinfold.training.config.parsing import to_toml

STYLE = """
:root { color-scheme: light dark; --line: #ddd; --soft: #666; --back: #fff; --text: #222; }
@media (prefers-color-scheme: dark) {
  :root { --line: #3a3f45; --soft: #9aa3ad; --back: #14171a; --text: #e6e8ea; }
}
body { font: 15px/1.5 system-ui, sans-serif; max-width: 80rem; margin: 2rem auto; padding: 0 1rem; color: var(--text);
  background: var(--back); }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.5rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: 14px; font-variant-numeric: tabular-nums; }
td, th { padding: .3rem .7rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
td:first-child, th:first-child { text-align: left; } p.note, li { color: var(--soft); font-size: 13px; }
details { border-bottom: 1px solid var(--line); padding: .3rem 0; } summary { cursor: pointer; }
pre { overflow-x: auto; font-size: 12px; padding: .6rem; border: 1px solid var(--line); }
"""


def format_page(board: Board) -> str:
    """Return the page of a board as HTML."""
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f"<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'sha256-{digest}'\">",
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>Board</title><style>{STYLE}</style></head><body>",
        "<h1>Board</h1>",
        f"<p>{len(board.entries)} entries. Each opens to its command, its recipe and the checksums of its files.</p>",
        *(_format_panel(board, panel) for panel in board.panels),
        "<h2>How to read it</h2>",
        *(f'<p class="note">{escape(note)}</p>' for note in FOOTNOTES),
        "</body></html>\n",
    ]
    return "\n".join(parts)


def _format_panel(board: Board, panel: Panel) -> str:
    entries = [panel.entries[method] for method in list_methods(panel)]
    rows = ["".join(f"<td>{escape(text)}</td>" for text in describe_entry(board, panel, entry)) for entry in entries]
    groups = [f"<li>{number}: {escape(', '.join(group))}</li>" for number, group in enumerate(panel.groups, start=1)]
    return "\n".join(
        [
            f"<h2>{escape(panel.title)}</h2>",
            '<div class="wide"><table><thead><tr>',
            "".join(f"<th>{escape(text)}</th>" for text in COLUMNS),
            "</tr></thead><tbody>",
            *(f"<tr>{row}</tr>" for row in rows),
            "</tbody></table></div>",
            '<p class="note">Groups of methods that are not significantly different:</p>',
            f"<ul>{''.join(groups)}</ul>",
            *(_format_details(entry) for entry in entries),
        ]
    )


def _format_details(entry: BoardEntry) -> str:
    values = ", ".join(f"seed {seed}: {value:.6f}" for seed, value in entry.values.items())
    files = "\n".join(f"{sha256}  {path}" for path, sha256 in sorted(entry.files.items()))
    lines = [
        f"replay       kinfold board BENCH... --replay {entry.name}",
        f"scores       {values}",
        f"search       {entry.trials} trials",
        f"data         {entry.data_fingerprint}",
        f"code         {', '.join(entry.codes)}",
        f"result files {entry.digest} (sha256 of the list below)",
        "",
        to_toml(dict(entry.tables)),
        files,
    ]
    return f"<details><summary>{escape(entry.name)}</summary><pre>{escape(chr(10).join(lines))}</pre></details>"
