"""Tables of methods by metrics: mean ± half width, the best in bold where it is significantly better.

The name of a column ends with a metric: `recall@1`, or `cub recall@1`. Results are fractions and shown in percent,
except for metrics of the embedding space (rho, uniformity, ...), which are shown unchanged.
"""

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from kinfold.experiments.statistics import Interval, compare_methods, compute_interval
from kinfold.experiments.table_styles import STYLES, Style, TableStyle
from kinfold.registry import check_known, suggest
from kinfold.training.loop.selection import is_better

# metrics that are not fractions
NOT_PERCENT = ("rho", "uniformity", "alignment", "intra", "inter", "density", "threshold", "opis")
BOLD_NOTE = "{}: the best, significantly better than every other method"
START, GAIN = "start", "gain"  # headings: score before training, and what training added
ENOUGH_REPEATS = 5  # comparisons of fewer repeats carry a caution


@dataclass(frozen=True)
class TableEntry:
    """One entry of a table.

    Attributes:
        interval: The result; None where there is none.
        published: A published number, in percent where ours are shown in percent. A string is shown unchanged, so that
            62.10 keeps its last digit.
        bold: Whether it is the best, and significantly better than every other.
        note: Text of a footnote.
        start: Score before the first training step.
        gain: Result minus start, paired by repeat.
    """

    interval: Interval | None
    published: float | str | None = None
    bold: bool = False
    note: str = ""
    start: Interval | None = None
    gain: Interval | None = None

    def __post_init__(self) -> None:
        if self.bold and self.interval is None:
            raise ValueError("an entry without a result cannot be the best: bold needs an interval")


Rows: TypeAlias = list[tuple[str, dict[str, TableEntry]]]  # method, column -> entry


def assemble_rows(
    results: Mapping[str, Mapping[str, Mapping[int, float]]],
    published: Mapping[str, Mapping[str, float]] | None = None,
    notes: Mapping[str, Mapping[str, str]] | None = None,
    level: float = 0.05,
    starts: Mapping[str, Mapping[str, Mapping[int, float]]] | None = None,
    untrained: Collection[str] = (),
    test: str = "t",
) -> Rows:
    """Assemble the rows of a table, for `render_table`.

    Args:
        results: Method -> column -> seed -> value. A column without any seed was tried and failed: it still counts in
            the correction, so nothing in this column is bold. A column that a method does not have was never run, as
            in a quoted row, and does not count.
        published: Method -> column -> published number.
        notes: Method -> column -> footnote.
        level: Significance level of the comparisons; intervals have 1 - level.
        starts: Like `results`, the scores before the first training step.
        untrained: Methods that ended with their initial weights, which are not compared.
        test: That of the comparisons, "t" or "rank".

    Returns:
        (method, column -> entry) for every method.
    """
    published, notes, starts = published or {}, notes or {}, starts or {}
    methods = [*results, *(name for name in published if name not in results)]
    bold = {}
    for column in dict.fromkeys(column for entries in results.values() for column in entries):
        tried = {name: entries[column] for name, entries in results.items() if column in entries}
        if any(tried.values()):
            smaller_is_better = is_better(_get_metric(column), 0.0, 1.0)
            left_out = [name for name in untrained if name in tried]
            comparison = compare_methods(tried, None, level, smaller_is_better, left_out, test)
            bold[column] = comparison.best if comparison.best_is_significant else None
    rows: Rows = []
    for name in methods:
        entries = {}
        for column in {**results.get(name, {}), **published.get(name, {}), **notes.get(name, {})}:
            by_seed = results.get(name, {}).get(column, {})
            start_by_seed = starts.get(name, {}).get(column, {})
            values = [*by_seed.values()]
            seeds = [seed for seed in by_seed if seed in start_by_seed]
            gains = [by_seed[seed] - start_by_seed[seed] for seed in seeds]
            entries[column] = TableEntry(
                compute_interval(values, 1 - level) if values else None,
                published.get(name, {}).get(column),
                bool(values) and bold[column] == name,
                notes.get(name, {}).get(column, ""),
                compute_interval([start_by_seed[seed] for seed in seeds], 1 - level) if seeds else None,
                compute_interval(gains, 1 - level) if seeds else None,
            )
        rows.append((name, entries))
    return rows


def render_table(
    rows: Rows,
    columns: list[str],
    style: Style = "text",
    caption: str | None = None,
    decimals: int = 1,
    gains: Collection[str] = (),
) -> str:
    """Render a table.

    An entry without a result is "-" with a footnote. Columns for which any row has a published number have a second
    column with these.

    Args:
        rows: Rows, as from `assemble_rows`.
        columns: The columns to show, in order.
        style: "text", "markdown", "latex" or "html".
        caption: Title of the table.
        decimals: Decimals of percentages. Other metrics have two more, which is the same precision.
        gains: Columns with two more columns: the score before training, and the gain over it.

    Returns:
        The table as a string.

    Raises:
        ValueError: The style or a column is unknown.

    Examples:
        >>> entry = TableEntry(Interval(0.634, 0.0031, 5), published=63.6, bold=True)
        >>> print(render_table([("margin", {"recall@1": entry}), ("lifted", {})], ["recall@1"], "markdown"))
        | method | recall@1, % | published |
        |---|---:|---:|
        | margin | **63.4 ± 0.3** | 63.6 |
        | lifted | - <sup>1</sup> |  |
        <BLANKLINE>
        **Bold**: the best, significantly better than every other method
        <BLANKLINE>
        <sup>1</sup> no result
    """
    check_known("style", style, STYLES)
    row_columns = dict.fromkeys(column for _, entries in rows for column in entries)
    for column in columns:
        if rows and column not in row_columns:
            near = suggest(column, row_columns)
            raise ValueError(f"no row has a column {column!r}{near}; rows have {', '.join(row_columns)}")
    rules, missing = STYLES[style], TableEntry(None)
    with_published = {column for _, entries in rows for column, entry in entries.items() if entry.published is not None}
    with_start = {column for _, entries in rows for column in gains if entries.get(column, missing).start is not None}
    heading = ["method"]
    for column in columns:
        heading += [column + _get_unit(column)] + ["published"] * (column in with_published)
        heading += [START, f"{GAIN}{difference_unit(column)}"] * (column in with_start)
    notes: list[str] = []
    body = []
    for name, entries in rows:
        cells = [rules.escape(_to_one_line(name))]
        for column in columns:
            entry = entries.get(column, missing)
            cells.append(_format_entry(entry, column, rules, notes, decimals))
            if column in with_published:
                cells.append(_format_published(entry.published, column, rules, decimals))
            if column in with_start:
                cells += [rules.escape(text) for text in _format_start_and_gain(entry, column, decimals)]
        body.append(cells)
    # a terminal without colors has no bold
    bold = rules.bold("Bold") if style != "text" else "between asterisks"
    any_bold = any(entries.get(column, missing).bold for _, entries in rows for column in columns)
    footnotes = [BOLD_NOTE.format(bold)] * any_bold
    footnotes += [f"{rules.mark(number)} {rules.escape(note)}" for number, note in enumerate(notes, start=1)]
    title = None if caption is None else rules.escape(_to_one_line(caption))
    return rules.format_table([[rules.escape(_to_one_line(cell)) for cell in heading], *body], footnotes, title)


def format_difference(column: str, difference: float, half_width: float, decimals: int = 2) -> str:
    """Format a difference of two results in the unit of `difference_unit`; a half width of NaN is left out.

    Examples:
        >>> format_difference("recall@1", 0.0123, 0.004)
        '+1.23 ± 0.40'
    """
    if math.isnan(difference):
        return "-"
    factor, places = _get_scale(column, decimals)
    spread = "" if math.isnan(half_width) else f" ± {factor * half_width:.{places}f}"
    return f"{factor * difference:+z.{places}f}{spread}"


def difference_unit(column: str) -> str:
    """Return the unit of differences of a metric, for a heading: percentage points for percentages."""
    return "" if _get_metric(column).startswith(NOT_PERCENT) else ", percentage points"


def format_probability(p: float) -> str:
    """Format a p value with three digits.

    Examples:
        >>> [format_probability(p) for p in (0.1, 0.0123, 0.00002, math.nan)]
        ['0.100', '0.012', '< 0.001', '-']
    """
    if math.isnan(p):
        return "-"
    return "< 0.001" if p < 0.0005 else f"{p:.3f}"


def describe_untrained(selected: Collection[bool]) -> str:
    """Return why a method is not compared, where repeats selected the weights before training; empty where none did."""
    count = sum(selected)
    return f"{count} of {len(selected)} repeats selected the start: compared with no method" if count else ""


def describe_started_runs(selected: Collection[bool]) -> str:
    """Return a note on single runs that selected the weights before training; empty where none did."""
    count = sum(selected)
    return f"{count} of {len(selected)} runs selected the start" if count else ""


def describe_caution(repeats: int) -> str:
    """Return a warning for comparisons of few repeats; empty where there are enough."""
    if repeats >= ENOUGH_REPEATS:
        return ""
    return (
        f"caution: with {repeats} repeats the test relies on its assumption that differences are normally distributed, "
        f"which so few repeats cannot show; {ENOUGH_REPEATS} or more seeds are safer"
    )


def _format_entry(entry: TableEntry, column: str, rules: TableStyle, notes: list[str], decimals: int) -> str:
    """Format one result; its footnote is added to `notes`."""
    interval, remarks = entry.interval, [_to_one_line(entry.note)] if entry.note.strip() else []
    if interval is None:
        text, remarks = "-", remarks or ["no result"]
    else:
        factor, places = _get_scale(column, decimals)
        text = f"{factor * interval.mean:z.{places}f}"
        if math.isnan(interval.half_width):
            remarks.append("one repeat, so no interval" if interval.count == 1 else "no interval")
        else:
            text += f" {rules.plus_minus} {factor * interval.half_width:.{places}f}"
        text = rules.bold(text) if entry.bold else text
    if remarks:
        note = "; ".join(remarks)
        notes += [note] * (note not in notes)
        text += f" {rules.mark(notes.index(note) + 1)}"
    return text


def _format_start_and_gain(entry: TableEntry, column: str, decimals: int) -> tuple[str, str]:
    if entry.start is None or entry.gain is None:
        return "", ""
    factor, places = _get_scale(column, decimals)
    gain = format_difference(column, entry.gain.mean, entry.gain.half_width, decimals)
    return f"{factor * entry.start.mean:z.{places}f}", gain


def _format_published(value: float | str | None, column: str, rules: TableStyle, decimals: int) -> str:
    """A published number with all its digits, and at least as many as ours."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value if re.fullmatch(r"\d+(\.\d+)?", value) else rules.escape(_to_one_line(value))
    rounded = f"{value:.{_get_scale(column, decimals)[1]}f}"
    return rounded if float(rounded) == value else str(value)


def _get_scale(column: str, decimals: int) -> tuple[float, int]:
    """Factor and decimals of a metric."""
    return (1.0, decimals + 2) if _get_metric(column).startswith(NOT_PERCENT) else (100.0, decimals)


def _get_unit(column: str) -> str:
    return "" if _get_metric(column).startswith(NOT_PERCENT) else ", %"


def _get_metric(column: str) -> str:
    if not column.strip():
        raise ValueError("a column needs a name that ends with a metric, such as 'recall@1'; got an empty one")
    return column.split()[-1]


def _to_one_line(text: str) -> str:
    """The text on one line, without characters that cannot be printed."""
    return "".join(c if c.isprintable() else "\ufffd" for c in " ".join(text.split()))
