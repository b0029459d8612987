"""Styles of a table: text for a terminal, Markdown, LaTeX, HTML."""

import html
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

Style = Literal["text", "markdown", "latex", "html"]
Cells: TypeAlias = Sequence[Sequence[str]]  # a heading and rows, escaped for the style

_MARKDOWN = str.maketrans(
    {c: "\\" + c for c in "\\`*_[]#"} | {"&": "&amp;", "<": "&lt;", ">": "&gt;", "|": "&#124;", "~": "&#126;"}
)
_LATEX = str.maketrans(
    {c: "\\" + c for c in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$"}
    | {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", "`": "{`}"}
    | {"[": "{[}", "*": "{*}"}  # at the start of a row they would belong to the \\ before it
)


def format_text(cells: Cells, footnotes: Sequence[str] = (), caption: str | None = None) -> str:
    """Format a table with boxes for a terminal, without colors."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table()
    for index, head in enumerate(cells[0]):
        table.add_column(Text(head), justify="right" if index else "left", no_wrap=True)
    for row in cells[1:]:
        table.add_row(*map(Text, row))
    # as wide as needed, and without colors whatever the environment says
    plain = Console(file=io.StringIO(), width=100_000, color_system=None, legacy_windows=False)
    with plain.capture() as captured:
        plain.print(table)
    lines = [line.rstrip() for line in captured.get().splitlines()]
    return "\n".join([*([] if caption is None else [caption]), *lines, *footnotes])


def format_markdown(cells: Cells, footnotes: Sequence[str] = (), caption: str | None = None) -> str:
    """Format a Markdown table; the cells are already escaped."""
    lines = [f"| {' | '.join(row)} |" for row in cells]
    lines.insert(1, f"|---|{'---:|' * (len(cells[0]) - 1)}")
    above = [] if caption is None else [caption, ""]
    return "\n".join([*above, *lines, *(line for note in footnotes for line in ("", note))])


def format_latex(cells: Cells, footnotes: Sequence[str] = (), caption: str | None = None) -> str:
    """Format a LaTeX table environment that needs no package; the cells are already escaped."""
    lines = [" & ".join(row) + r" \\" for row in cells]
    below = [r"\par\smallskip", r"{\footnotesize " + r" \\ ".join(footnotes) + r"\par}"] if footnotes else []
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            *([] if caption is None else [rf"\caption{{{caption}}}"]),
            rf"\begin{{tabular}}{{l{'r' * (len(cells[0]) - 1)}}}",
            r"\hline",
            lines[0],
            r"\hline",
            *lines[1:],
            r"\hline",
            r"\end{tabular}",
            *below,
            r"\end{table}",
        ]
    )


def format_html(cells: Cells, footnotes: Sequence[str] = (), caption: str | None = None) -> str:
    """Format an HTML table for a notebook; the cells are already escaped."""
    lines = [] if caption is None else [f"<p>{caption}</p>"]
    lines += ["<table>", f"<thead><tr>{''.join(f'<th>{cell}</th>' for cell in cells[0])}</tr></thead>", "<tbody>"]
    lines += [f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in cells[1:]]
    return "\n".join([*lines, "</tbody>", "</table>", *(f"<p>{note}</p>" for note in footnotes)])


def escape_markdown(text: str) -> str:
    r"""Escape a text so that Markdown shows it literally, also in a table.

    Examples:
        >>> print(escape_markdown("top_k|*"))
        top\_k&#124;\*
    """
    return re.sub(r"^(\d*)([-+.)])", r"\1\\\2", text.translate(_MARKDOWN))  # a line that would start a list


def escape_latex(text: str) -> str:
    r"""Escape a text so that LaTeX shows it literally, also in a table.

    Examples:
        >>> print(escape_latex("R_50 & 10%"))
        R\_50 \& 10\%
    """
    return text.translate(_LATEX).replace("--", "-{}-").replace("--", "-{}-")  # twice: three hyphens overlap


@dataclass(frozen=True)
class TableStyle:
    """How a style writes the parts of a table.

    Attributes:
        escape: Escapes a text.
        bold: Marks a number as the best.
        mark: Marks a number with that of a footnote.
        plus_minus: The plus-minus sign.
        format_table: Formats escaped cells, footnotes and a caption.
    """

    escape: Callable[[str], str]
    bold: Callable[[str], str]
    mark: Callable[[int], str]
    plus_minus: str
    format_table: Callable[[Cells, Sequence[str], str | None], str]


STYLES: dict[str, TableStyle] = {
    "text": TableStyle(str, lambda text: f"*{text}*", lambda n: f"[{n}]", "±", format_text),
    "markdown": TableStyle(
        escape_markdown, lambda text: f"**{text}**", lambda n: f"<sup>{n}</sup>", "±", format_markdown
    ),
    "latex": TableStyle(
        escape_latex,
        lambda text: rf"\textbf{{{text}}}",
        lambda n: rf"\textsuperscript{{{n}}}",
        r"$\pm$",
        format_latex,
    ),
    "html": TableStyle(html.escape, lambda text: f"<b>{text}</b>", lambda n: f"<sup>{n}</sup>", "±", format_html),
}
