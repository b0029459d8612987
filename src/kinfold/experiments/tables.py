"""Tables of methods by metrics: mean ± half width, bold only where a difference was shown, published numbers beside.

The name of a column ends with a metric: `recall@1`, or `cub recall@1`. Results are fractions, shown in percent, except
for metrics of the space itself (rho, uniformity, ...), which are shown as they are.
"""

import io
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from kinfold.experiments.statistics import Interval, compare_methods, compute_interval
from kinfold.registry import suggest
from kinfold.training.loop.selection import is_better

Style = Literal["text", "markdown", "latex"]
Cells: TypeAlias = Sequence[Sequence[str]]  # a heading and rows, ready for the style

# metrics that are no fractions
AS_THEY_ARE = ("rho", "uniformity", "alignment", "intra", "inter", "density")
BOLD = "{}: the best, told apart from every other method"
START, GAIN = "start", "gain"  # headings of what a method began with, and what training added
ENOUGH = 5  # repeats from which on comparisons are told without a caution


@dataclass(frozen=True)
class Entry:
    """One cell. `interval`: None where there is no result. `published`: in the unit shown, so percent where we show
    percent; a string is shown as it stands, so that 62.10 keeps its last digit. `bold`: the best, and told apart from
    every other. `note`: becomes a footnote. `start`: the score before the first step; `gain`: the result less it,
    repeat by repeat."""

    interval: Interval | None
    published: float | str | None = None
    bold: bool = False
    note: str = ""
    start: Interval | None = None
    gain: Interval | None = None

    def __post_init__(self) -> None:
        if self.bold and self.interval is None:
            raise ValueError("an entry without a result cannot be the best: bold needs an interval")


Rows: TypeAlias = list[tuple[str, dict[str, Entry]]]


def assemble_rows(
    results: Mapping[str, Mapping[str, Mapping[int, float]]],
    published: Mapping[str, Mapping[str, float]] | None = None,
    notes: Mapping[str, Mapping[str, str]] | None = None,
    level: float = 0.05,
    starts: Mapping[str, Mapping[str, Mapping[int, float]]] | None = None,
    untrained: Collection[str] = (),
) -> Rows:
    """Rows for `render`. results: method -> column -> seed -> value; published and notes: method -> column -> entry.
    starts: as results, the scores before the first step. untrained: methods that ended there, which no statement
    compares with others.

    The best of a column is bold where `compare` finds it real. A column that a method has without any seeds was tried
    and failed: the others are judged as strictly as if it were there, so nothing is bold. A column that it does not
    have was never run, as in a row quoted from elsewhere, and does not count.
    """
    published, notes, starts = published or {}, notes or {}, starts or {}
    methods = [*results, *(name for name in published if name not in results)]
    bold = {}
    for column in dict.fromkeys(column for entries in results.values() for column in entries):
        tried = {name: entries[column] for name, entries in results.items() if column in entries}
        if any(tried.values()):
            less = is_better(_metric(column), 0.0, 1.0)
            found = compare_methods(tried, None, level, less, [name for name in untrained if name in tried])
            bold[column] = found.best if found.real else None
    rows: Rows = []
    for name in methods:
        entries = {}
        for column in {**results.get(name, {}), **published.get(name, {}), **notes.get(name, {})}:
            by_seed = results.get(name, {}).get(column, {})
            before = starts.get(name, {}).get(column, {})
            values = [*by_seed.values()]
            known = [seed for seed in by_seed if seed in before]
            entries[column] = Entry(
                compute_interval(values, 1 - level) if values else None,
                published.get(name, {}).get(column),
                bool(values) and bold[column] == name,
                notes.get(name, {}).get(column, ""),
                compute_interval([before[seed] for seed in known], 1 - level) if known else None,
                compute_interval([by_seed[seed] - before[seed] for seed in known], 1 - level) if known else None,
            )
        rows.append((name, entries))
    return rows


def render(
    rows: Rows,
    columns: list[str],
    style: Style = "text",
    caption: str | None = None,
    decimals: int = 1,
    gains: Collection[str] = (),
) -> str:
    """The table in one of three styles. A cell without a result is "-" with a footnote that says why.

    Columns of published numbers stand beside those for which any row has one. `decimals` counts those of percents;
    metrics shown as they are get two more, which is the same precision. Beside the columns in `gains` stand the score
    of the start and the gain over it, where any row has them.

    >>> rows = [("margin", {"recall@1": Entry(Interval(0.634, 0.0031, 5), published=63.6, bold=True)}), ("lifted", {})]
    >>> print(render(rows, ["recall@1"], "markdown"))
    | method | recall@1, % | published |
    |---|---:|---:|
    | margin | **63.4 ± 0.3** | 63.6 |
    | lifted | - <sup>1</sup> |  |
    <BLANKLINE>
    **Bold**: the best, told apart from every other method
    <BLANKLINE>
    <sup>1</sup> no result
    """
    if style not in _STYLES:
        raise ValueError(f"unknown style {style!r}{suggest(style, _STYLES)}; there are {', '.join(_STYLES)}")
    known = dict.fromkeys(column for _, entries in rows for column in entries)
    for column in columns:
        if rows and column not in known:
            raise ValueError(f"no row has a column {column!r}{suggest(column, known)}; rows have {', '.join(known)}")
    look = _STYLES[style]
    present = [entries.get(column, Entry(None)) for _, entries in rows for column in columns]
    shown = {column for _, entries in rows for column, entry in entries.items() if entry.published is not None}
    started = {column for _, entries in rows for column in gains if entries.get(column, Entry(None)).start is not None}
    heading = ["method"]
    for column in columns:
        heading += [column + _unit(column)] + ["published"] * (column in shown)
        heading += [START, f"{GAIN}{difference_unit(column)}"] * (column in started)
    notes: list[str] = []
    body = []
    for name, entries in rows:
        cells = [look.escape(_plain(name))]
        for column in columns:
            entry = entries.get(column, Entry(None))
            cells.append(_cell(entry, column, look, notes, decimals))
            if column in shown:
                cells.append("" if entry.published is None else _published(entry.published, column, look, decimals))
            if column in started:
                cells += [look.escape(text) for text in _start_and_gain(entry, column, decimals)]
        body.append(cells)
    # a terminal without colours has no bold
    best = look.bold("Bold") if style != "text" else "between asterisks"
    footnotes = [BOLD.format(best)] * any(entry.bold for entry in present)
    footnotes += [f"{look.mark(number)} {look.escape(note)}" for number, note in enumerate(notes, start=1)]
    title = None if caption is None else look.escape(_plain(caption))
    return look.table([[look.escape(_plain(cell)) for cell in heading], *body], footnotes, title)


def format_difference(column: str, difference: float, half_width: float) -> str:
    """A difference of two results in the unit of `difference_unit`; a half width of NaN is left out.

    >>> difference_text("recall@1", 0.0123, 0.004)
    '+1.23 ± 0.40'
    """
    if math.isnan(difference):
        return "-"
    factor, places = _scale(column, 2)
    wide = "" if math.isnan(half_width) else f" ± {factor * half_width:.{places}f}"
    return f"{factor * difference:+z.{places}f}{wide}"


def difference_unit(column: str) -> str:
    """What differences of a metric are counted in, as its heading says: a difference of percents is no percentage."""
    return "" if _metric(column).startswith(AS_THEY_ARE) else ", percentage points"


def format_probability(p: float) -> str:
    """Every p with as many digits.

    >>> [probability_text(p) for p in (0.1, 0.0123, 0.00002, math.nan)]
    ['0.100', '0.012', '< 0.001', '-']
    """
    if math.isnan(p):
        return "-"
    return "< 0.001" if p < 0.0005 else f"{p:.3f}"


def describe_caution(repeats: int) -> str:
    """What readers of a comparison must know where it rests on few repeats; nothing where there are enough."""
    if repeats >= ENOUGH:
        return ""
    return (
        f"caution: with {repeats} repeats the test leans on its assumption that differences are normally distributed, "
        f"which so few cannot show; {ENOUGH} or more seeds are safer"
    )


def format_text(cells: Cells, footnotes: Sequence[str] = (), caption: str | None = None) -> str:
    """Boxes for a terminal; the same look as the tables of the command line, without its colours."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table()
    for index, head in enumerate(cells[0]):
        table.add_column(Text(head), justify="right" if index else "left", no_wrap=True)
    for row in cells[1:]:
        table.add_row(*map(Text, row))
    # as wide as need be, and without colours whatever the environment asks for
    plain = Console(file=io.StringIO(), width=100_000, color_system=None, legacy_windows=False)
    with plain.capture() as captured:
        plain.print(table)
    lines = [line.rstrip() for line in captured.get().splitlines()]
    return "\n".join([*([] if caption is None else [caption]), *lines, *footnotes])


def format_markdown(cells: Cells, footnotes: Sequence[str] = (), caption: str | None = None) -> str:
    """A table with pipes; cells are already escaped."""
    lines = [f"| {' | '.join(row)} |" for row in cells]
    lines.insert(1, f"|---|{'---:|' * (len(cells[0]) - 1)}")
    above = [] if caption is None else [caption, ""]
    return "\n".join([*above, *lines, *(line for note in footnotes for line in ("", note))])


def format_latex(cells: Cells, footnotes: Sequence[str] = (), caption: str | None = None) -> str:
    """A table environment that needs no package; cells are already escaped."""
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


def escape_markdown(text: str) -> str:
    r"""Text that Markdown shows as it stands, in a table too.

    >>> print(escape_markdown("top_k|*"))
    top\_k&#124;\*
    """
    return re.sub(r"^(\d*)([-+.)])", r"\1\\\2", text.translate(_MARKDOWN))  # a line that would begin a list


def escape_latex(text: str) -> str:
    r"""Text that LaTeX shows as it stands, in a table too.

    >>> print(escape_latex("R_50 & 10%"))
    R\_50 \& 10\%
    """
    return text.translate(_LATEX).replace("--", "-{}-").replace("--", "-{}-")  # twice: three hyphens overlap


def _cell(entry: Entry, column: str, look: "_Look", notes: list[str], decimals: int) -> str:
    """One result in its style; what is to be said about it joins the notes."""
    found, said = entry.interval, [_plain(entry.note)] if entry.note.strip() else []
    if found is None:
        text, said = "-", said or ["no result"]
    else:
        factor, places = _scale(column, decimals)
        text = f"{factor * found.mean:z.{places}f}"
        if math.isnan(found.half_width):
            said.append("one repeat, so no interval" if found.count == 1 else "no interval")
        else:
            text += f" {look.plus_minus} {factor * found.half_width:.{places}f}"
        text = look.bold(text) if entry.bold else text
    if said:
        note = "; ".join(said)
        notes += [note] * (note not in notes)
        text += f" {look.mark(notes.index(note) + 1)}"
    return text


def _start_and_gain(entry: Entry, column: str, decimals: int) -> tuple[str, str]:
    if entry.start is None or entry.gain is None:
        return "", ""
    factor, places = _scale(column, decimals)
    half = entry.gain.half_width
    wide = "" if math.isnan(half) else f" ± {factor * half:.{places}f}"
    return f"{factor * entry.start.mean:z.{places}f}", f"{factor * entry.gain.mean:+z.{places}f}{wide}"


def _published(value: float | str, column: str, look: "_Look", decimals: int) -> str:
    """With all the digits that were given, and of a number no fewer than ours."""
    if isinstance(value, str):
        return value if re.fullmatch(r"\d+(\.\d+)?", value) else look.escape(_plain(value))
    printed = f"{value:.{_scale(column, decimals)[1]}f}"
    return printed if float(printed) == value else str(value)


def _scale(column: str, decimals: int) -> tuple[float, int]:
    return (1.0, decimals + 2) if _metric(column).startswith(AS_THEY_ARE) else (100.0, decimals)


def _unit(column: str) -> str:
    return "" if _metric(column).startswith(AS_THEY_ARE) else ", %"


def _metric(column: str) -> str:
    if not column.strip():
        raise ValueError("a column needs a name that ends with a metric, such as 'recall@1'; got an empty one")
    return column.split()[-1]


def _plain(text: str) -> str:
    """On one line, and nothing that no page can show."""
    return "".join(c if c.isprintable() else "\ufffd" for c in " ".join(text.split()))


@dataclass(frozen=True)
class _Look:
    escape: Callable[[str], str]
    bold: Callable[[str], str]
    mark: Callable[[int], str]
    plus_minus: str
    table: Callable[[Cells, Sequence[str], str | None], str]


_MARKDOWN = str.maketrans(
    {c: "\\" + c for c in "\\`*_[]#"} | {"&": "&amp;", "<": "&lt;", ">": "&gt;", "|": "&#124;", "~": "&#126;"}
)
_LATEX = str.maketrans(
    {c: "\\" + c for c in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$"}
    | {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", "`": "{`}"}
    | {"[": "{[}", "*": "{*}"}  # at the start of a row they would belong to the \\ before it
)
_STYLES: dict[str, _Look] = {
    "text": _Look(str, lambda text: f"*{text}*", lambda n: f"[{n}]", "±", format_text),
    "markdown": _Look(escape_markdown, lambda text: f"**{text}**", lambda n: f"<sup>{n}</sup>", "±", format_markdown),
    "latex": _Look(
        escape_latex, lambda t: rf"\textbf{{{t}}}", lambda n: rf"\textsuperscript{{{n}}}", r"$\pm$", format_latex
    ),
}
