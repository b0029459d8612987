"""A board as tables: an overview of methods and panels, and the details of each panel."""

from kinfold.board.board import Board, Panel
from kinfold.board.entries import BoardEntry
from kinfold.experiments.statistics import Interval, compute_interval
from kinfold.experiments.table_styles import STYLES, Style
from kinfold.experiments.tables import NOT_PERCENT, describe_caution

COLUMNS = (
    "method",
    "score",
    "gain over start",
    "group",
    "claimed",
    "measured - claimed",
    "minutes per repeat",
    "repeats to see 0.5",
    "entry",
)
FOOTNOTES = (
    "score: mean ± half width of its 95 % interval over repeats. gain over start: over the same model before its first "
    "step, on the same seeds",
    "group: methods that share a number are not significantly different (paired t-tests, Holm's correction, 5 %); a "
    "dash marks a method that selected its initial weights and was not compared",
    "repeats to see 0.5: repeats that would show half a percentage point of difference to the best method with "
    "probability 0.8, given the spread of the repeats here; few repeats estimate it roughly",
)


def format_board(board: Board, style: Style) -> str:
    """Return the overview, if there are several panels, and the table of every panel."""
    parts = [_format_overview(board, style)] if len(board.panels) > 1 else []
    parts += [format_panel(board, panel, style) for panel in board.panels]
    return "\n\n".join([*parts, *(STYLES[style].escape(note) for note in FOOTNOTES)]) + "\n"


def format_panel(board: Board, panel: Panel, style: Style) -> str:
    """Return the table of one panel, the best method first."""
    rules = STYLES[style]
    cells = [[rules.escape(text) for text in COLUMNS]]
    for method in list_methods(panel):
        texts = zip(COLUMNS, describe_entry(board, panel, panel.entries[method]), strict=True)
        cells.append([_escape(text, style, column) for column, text in texts])
    footnotes = [describe_caution(min(interval.count for interval in panel.comparison.intervals.values()))]
    codes = {code for entry in panel.entries.values() for code in entry.codes}
    if len(codes) > 1:
        footnotes.append(f"these runs were made with {len(codes)} versions of the code")
    if any(entry.is_inflated for entry in panel.entries.values()):
        footnotes.append("INFLATED: a run was selected on the test classes")
    unit = "" if panel.first.metric.startswith(NOT_PERCENT) else ", %"
    return rules.format_table(
        cells, [rules.escape(note) for note in footnotes if note], rules.escape(panel.title + unit)
    )


def list_methods(panel: Panel) -> list[str]:
    """Return the methods of a panel, the best mean first."""
    intervals, comparison = panel.comparison.intervals, panel.comparison
    return sorted(intervals, key=lambda name: intervals[name].mean, reverse=not comparison.smaller_is_better)


def describe_entry(board: Board, panel: Panel, entry: BoardEntry) -> list[str]:
    """Return the texts of one row, in the order of `COLUMNS`."""
    metric, interval = entry.metric, compute_interval([*entry.values.values()])
    gain, repeats = panel.compute_gain(entry.method), panel.count_needed_repeats(entry.method)
    claims = board.find_claims(entry)
    groups = panel.list_groups_of(entry.method)
    inflated = " (inflated)" * entry.is_inflated
    return [
        entry.method,
        _format_interval(interval, metric) + inflated,
        "" if gain is None else _format_interval(gain, metric, signed=True),
        ", ".join(map(str, groups)) if groups else "-",
        "; ".join(f"{_scale(claim.value, metric):.1f} ({claim.source})" for claim in claims),
        "; ".join(f"{_scale(interval.mean - claim.value, metric):+.1f}" for claim in claims),
        f"{entry.seconds / 60:.1f}",
        "" if repeats is None else str(repeats),
        entry.name,
    ]


def _format_overview(board: Board, style: Style) -> str:
    rules = STYLES[style]
    methods = list(dict.fromkeys(name for panel in board.panels for name in panel.entries))
    cells = [[rules.escape(text) for text in ("method", *(panel.title for panel in board.panels))]]
    for method in methods:
        texts = []
        for panel in board.panels:
            if method not in panel.entries:
                texts.append("")
                continue
            entry = panel.entries[method]
            score = _format_interval(compute_interval([*entry.values.values()]), entry.metric)
            groups = panel.list_groups_of(method)
            texts.append(f"{score} [{', '.join(map(str, groups)) or '-'}]")
        cells.append([rules.escape(method), *(_escape(text, style, "score") for text in texts)])
    note = "[numbers]: groups of methods that are not significantly different, in each column"
    return rules.format_table(cells, [rules.escape(note)], rules.escape("All methods"))


def _escape(text: str, style: Style, column: str) -> str:
    """Escape a cell; numbers need no escapes in Markdown, and are easier to read without them."""
    is_plain = style == "markdown" and column not in ("method", "claimed", "entry")
    return text if is_plain else STYLES[style].escape(text)


def _scale(value: float, metric: str) -> float:
    return value if metric.startswith(NOT_PERCENT) else 100.0 * value


def _format_interval(interval: Interval, metric: str, *, signed: bool = False) -> str:
    mean = f"{_scale(interval.mean, metric):{'+' if signed else ''}.1f}"
    return mean if interval.count < 2 else f"{mean} ± {_scale(interval.half_width, metric):.1f}"
