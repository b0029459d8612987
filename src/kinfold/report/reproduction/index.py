"""One page over several published tables: links to their pages, and for every row whether it was run, or why not.

The page loads nothing and runs nothing. All text is escaped.
"""

import base64
import hashlib
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

from kinfold.files.atomic import write_json, write_text
from kinfold.papers.plan import ReproductionPlan
from kinfold.papers.published import PublishedRow
from kinfold.papers.reproduce import Reproduction
from kinfold.papers.table_files import TOY
from kinfold.report.reproduction.figures import PAGE

RUN, FAILED, NOT_RUN, WAITING = "run", "failed", "number only", "waiting"
STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.05rem; margin: 1.6rem 0 .3rem; } p { margin: .3rem 0; }
table { border-collapse: collapse; font-size: 13px; } td, th { padding: .2rem .6rem; border-bottom: 1px solid #ddd; }
td, th { text-align: left; vertical-align: top; } summary { cursor: pointer; font-size: 13px; color: #555; }
.wide { overflow-x: auto; } .failed { color: #a8071a; font-weight: 600; } .waiting, .number { color: #777; }
@media (prefers-color-scheme: dark) { body { background: #fff; } }
"""


@dataclass(frozen=True)
class RowState:
    """Whether a row was run on one data set.

    Attributes:
        row: Name of the row.
        label: The method.
        data: Name of the data set.
        state: "run", "failed", "number only" or "waiting".
        reason: Why it has no number, or what a reader must know about it; may be empty.
    """

    row: str
    label: str
    data: str
    state: str
    reason: str = ""


@dataclass
class ReproductionIndex:
    """Which tables were run, and how every row ended.

    Args:
        plans: The tables that are run by one command.
        folders: The folder of each.
        path: The page, an .html file; a .json file of the same name is written beside it.
    """

    plans: Sequence[ReproductionPlan]
    folders: Sequence[Path]
    path: Path
    _reproductions: dict[str, dict[str, Reproduction]] = field(default_factory=dict)

    def add(self, reproduction: Reproduction) -> None:
        """Add the numbers of one data set, and write the page again."""
        self._reproductions.setdefault(reproduction.plan.table.name, {})[reproduction.data] = reproduction
        self.write()

    def write(self) -> Path:
        """Write the page and the .json file."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_text(self.path, self.format_page(), self.path.parent)
        write_json(self.path.with_suffix(".json"), self.to_dictionary(), self.path.parent)
        return self.path

    def list_states(self, plan: ReproductionPlan) -> list[RowState]:
        """List the state of every row of a table, on every data set that is run."""
        return [
            _find_state(row, data, self._reproductions.get(plan.table.name, {}).get(data))
            for row in plan.table.rows
            if row in plan.rows or row in plan.not_run
            for data in plan.settings
        ]

    def to_dictionary(self) -> dict[str, Any]:
        """Return the same as plain data."""
        return {
            "rows": dict(self._count_states(self.plans)),
            "tables": [
                {
                    "table": plan.table.name,
                    "title": plan.table.title,
                    "source": plan.table.source,
                    "pages": self._list_pages(plan, folder),
                    "notes": [*plan.notes],
                    "rows": [
                        {"row": each.row, "data": each.data, "state": each.state, "reason": each.reason}
                        for each in self.list_states(plan)
                    ],
                }
                for plan, folder in zip(self.plans, self.folders, strict=True)
            ],
        }

    def format_page(self) -> str:
        """Return the page as HTML."""
        digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
        rows = sum(len(plan.rows) + len(plan.not_run) for plan in self.plans)
        counts = _format_counts(self._count_states(self.plans))
        parts = [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
            f"style-src 'sha256-{digest}'\">",
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>Published tables, run again</title><style>{STYLE}</style></head><body>",
            "<h1>Published tables and figures, run again</h1>",
            f"<p>{len(self.plans)} tables and figures, {rows} rows. A row counts once on each data set: {counts}.</p>",
            '<div class="wide"><table><thead>',
            "<tr><th>table or figure</th><th>what</th><th>where</th><th>rows</th><th>pages</th></tr>",
            "</thead><tbody>",
            *(self._format_line(plan, folder) for plan, folder in zip(self.plans, self.folders, strict=True)),
            "</tbody></table></div>",
        ]
        for plan in self.plans:
            parts += self._format_rows(plan)
        return "\n".join([*parts, "</body></html>\n"])

    def _format_line(self, plan: ReproductionPlan, folder: Path) -> str:
        table = plan.table
        links = ", ".join(
            f'<a href="{escape(quote(page))}">{escape(data)}</a>'
            for data, page in self._list_pages(plan, folder).items()
        )
        cells = (
            f'<a href="#{escape(table.name)}">{escape(table.name)}</a>',
            escape(table.title),
            escape(table.source),
            escape(_format_counts(self._count_states([plan]))),
            links or "-",
        )
        return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"

    def _format_rows(self, plan: ReproductionPlan) -> Iterator[str]:
        table, states = plan.table, self.list_states(plan)
        yield f'<h2 id="{escape(table.name)}">{escape(table.name)}: {escape(table.title)}</h2>'
        yield f"<p>{escape(table.paper)}, {escape(table.source)}</p>"
        yield from (f"<p>{escape(note)}</p>" for note in plan.notes if "not run twice" in note)
        yield f"<details><summary>{len(states)} rows</summary><div class='wide'><table><thead>"
        yield "<tr><th>row</th><th>method</th><th>data</th><th>state</th><th>reason</th></tr></thead><tbody>"
        for each in states:
            kind = each.state.split()[0]
            texts = (each.row, each.label, each.data)
            yield (
                f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in texts)}"
                f'<td class="{kind}">{escape(each.state)}</td><td>{escape(each.reason)}</td></tr>'
            )
        yield "</tbody></table></div></details>"

    def _list_pages(self, plan: ReproductionPlan, folder: Path) -> dict[str, str]:
        """Data set -> its page, relative to the index, for those that were written by this command."""
        return {
            data: Path(os.path.relpath(folder / data / PAGE, self.path.parent)).as_posix()
            for data in self._reproductions.get(plan.table.name, {})
        }

    def _count_states(self, plans: Sequence[ReproductionPlan]) -> "Counter[str]":
        return Counter(each.state for plan in plans for each in self.list_states(plan))


def _find_state(row: PublishedRow, data: str, reproduction: Reproduction | None) -> RowState:
    """The state of one row on one data set."""
    if row.not_run is not None:
        return RowState(row.name, row.label, data, NOT_RUN, row.not_run)
    if reproduction is None:
        return RowState(row.name, row.label, data, WAITING, "not run yet")
    errors = [error for task, error in reproduction.failed.items() if task.startswith(f"runs/{data}/{row.name}/")]
    if any(reproduction.ours.get(row.name, {}).values()) and not errors:
        reason = reproduction.untrained.get(row.name, "")
        return RowState(row.name, row.label, data, RUN, reason if data != TOY else "")
    others = [error for task, error in reproduction.failed.items() if task == f"{data}, {row.name}"]  # its search
    return RowState(row.name, row.label, data, FAILED, "; ".join(dict.fromkeys([*errors, *others])) or "no number")


def _format_counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{counts[state]} {state}" for state in (RUN, FAILED, NOT_RUN, WAITING) if counts.get(state))
