"""Tables: what a cell says, what is bold, and that every name survives the way into each style."""

import math
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from kinfold.experiments.statistics import Interval, compute_interval
from kinfold.experiments.table_styles import escape_latex, escape_markdown, format_latex, format_markdown, format_text
from kinfold.experiments.tables import (
    TableEntry,
    assemble_rows,
    describe_caution,
    difference_unit,
    format_difference,
    format_probability,
    render_table,
)

STYLES = ("text", "markdown", "latex")
ROWS = [
    (
        "margin",
        {
            "recall@1": TableEntry(Interval(0.63449, 0.00314, 5), 63.6, True),
            "rho@1": TableEntry(Interval(0.3217, 0.01, 5)),
        },
    ),
    (
        "lifted_2",
        {"recall@1": TableEntry(Interval(0.6, math.nan, 1)), "rho@1": TableEntry(None, note="diverged & stopped")},
    ),
    ("hdc", {"recall@1": TableEntry(None, 53.62, note="quoted")}),
]


def cells(markdown):
    """Texts of a table as an independent reader of Markdown sees them, row by row."""
    rows, tokens = [], MarkdownIt("commonmark").enable("table").enable("strikethrough").parse(markdown)
    for position, token in enumerate(tokens):
        if token.type == "tr_open":
            rows.append([])
        if token.type in ("th_open", "td_open"):
            rows[-1].append("".join(child.content for child in tokens[position + 1].children))
    return rows


def test_text_shows_the_whole_table():
    assert render_table(ROWS, ["recall@1", "rho@1"], "text", "Birds") == "\n".join(
        [
            "Birds",
            "┏━━━━━━━━━━┳━━━━━━━━━━━━━━┳━━━━━━━━━━━┳━━━━━━━━━━━━━━━┓",
            "┃ method   ┃  recall@1, % ┃ published ┃         rho@1 ┃",
            "┡━━━━━━━━━━╇━━━━━━━━━━━━━━╇━━━━━━━━━━━╇━━━━━━━━━━━━━━━┩",
            "│ margin   │ *63.4 ± 0.3* │      63.6 │ 0.322 ± 0.010 │",
            "│ lifted_2 │     60.0 [1] │           │         - [2] │",
            "│ hdc      │        - [3] │     53.62 │         - [4] │",
            "└──────────┴──────────────┴───────────┴───────────────┘",
            "between asterisks: the best, significantly better than every other method",
            "[1] one repeat, so no interval",
            "[2] diverged & stopped",
            "[3] quoted",
            "[4] no result",
        ]
    )


def test_markdown_is_parsed_as_intended():
    text = render_table(ROWS, ["recall@1", "rho@1"], "markdown", "Birds_1")
    assert cells(text) == [
        ["method", "recall@1, %", "published", "rho@1"],
        ["margin", "63.4 ± 0.3", "63.6", "0.322 ± 0.010"],
        ["lifted_2", "60.0 <sup>1</sup>", "", "- <sup>2</sup>"],
        ["hdc", "- <sup>3</sup>", "53.62", "- <sup>4</sup>"],
    ]
    page = MarkdownIt("commonmark").enable("table").render(text)
    assert "<strong>63.4 ± 0.3</strong>" in page
    assert page.startswith("<p>Birds_1</p>")
    assert "<p><sup>2</sup> diverged &amp; stopped</p>" in page


def test_latex_is_a_whole_environment():
    assert render_table(ROWS, ["recall@1", "rho@1"], "latex", "Birds, 50 %") == "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            r"\caption{Birds, 50 \%}",
            r"\begin{tabular}{lrrr}",
            r"\hline",
            r"method & recall@1, \% & published & rho@1 \\",
            r"\hline",
            r"margin & \textbf{63.4 $\pm$ 0.3} & 63.6 & 0.322 $\pm$ 0.010 \\",
            r"lifted\_2 & 60.0 \textsuperscript{1} &  & - \textsuperscript{2} \\",
            r"hdc & - \textsuperscript{3} & 53.62 & - \textsuperscript{4} \\",
            r"\hline",
            r"\end{tabular}",
            r"\par\smallskip",
            r"{\footnotesize \textbf{Bold}: the best, significantly better than every other method \\ "
            r"\textsuperscript{1} one repeat, so no interval \\ \textsuperscript{2} diverged \& stopped \\ "
            r"\textsuperscript{3} quoted \\ \textsuperscript{4} no result\par}",
            r"\end{table}",
        ]
    )


@pytest.mark.parametrize("style", STYLES)
def test_without_notes_bold_or_caption_there_is_only_the_table(style):
    table = render_table([("a", {"map@r": TableEntry(Interval(0.5, 0.01, 3))})], ["map@r"], style)
    assert "old" not in table
    assert "caption" not in table
    assert "footnotesize" not in table
    assert "published" not in table
    assert len(table.splitlines()) == {"text": 5, "markdown": 3, "latex": 10}[style]


def test_decimals_and_units_follow_the_metric():
    entry = TableEntry(Interval(0.123456, 0.000678, 4))
    columns = ["cub recall@1", "nmi", "eer", "rho@2", "uniformity", "density", "intra", "inter", "cars alignment"]
    rows = [("a", dict.fromkeys(columns, entry))]
    assert cells(render_table(rows, columns, "markdown", decimals=2)) == [
        ["method", "cub recall@1, %", "nmi, %", "eer, %", *columns[3:]],
        ["a", *["12.35 ± 0.07"] * 3, *["0.1235 ± 0.0007"] * 6],
    ]
    assert cells(render_table(rows, ["nmi", "rho@2"], "markdown"))[1] == ["a", "12.3 ± 0.1", "0.123 ± 0.001"]


def test_a_value_that_rounds_to_zero_has_no_sign():
    rows = [("a", {"ami": TableEntry(Interval(-0.0001, 0.0, 4))})]
    assert cells(render_table(rows, ["ami"], "markdown"))[1] == ["a", "0.0 ± 0.0"]


def test_published_numbers_keep_the_digits_they_were_printed_with():
    rows = [
        (str(v), {"recall@1": TableEntry(None, v), "rho@1": TableEntry(None, v)}) for v in (64.0, 63.6, 53.62, 0.34567)
    ]
    table_rows = cells(render_table(rows, ["recall@1", "rho@1"], "markdown"))[1:]
    assert [row[2] for row in table_rows] == ["64.0", "63.6", "53.62", "0.34567"]
    assert [row[4] for row in table_rows] == ["64.000", "63.600", "53.620", "0.34567"]


def test_a_published_string_is_shown_unchanged():
    rows = [("a", {"recall@1": TableEntry(None, "62.10")}), ("b", {"recall@1": TableEntry(None, "6|2")})]
    assert "| 62.10 |" in render_table(rows, ["recall@1"], "markdown")
    assert "| 6&#124;2 |" in render_table(rows, ["recall@1"], "markdown")


def test_equal_notes_share_a_footnote():
    rows = [(name, {"mrr": TableEntry(None, note=note)}) for name, note in (("a", "x"), ("b", "y"), ("c", "x"))]
    table = render_table(rows, ["mrr"], "text")
    assert re.findall(r"- \[(\d)\]", table) == ["1", "2", "1"]
    assert table.splitlines()[-2:] == ["[1] x", "[2] y"]


def test_a_note_on_a_result_is_shown_beside_it():
    entry = TableEntry(Interval(0.5, math.nan, 1), note="4 of 5 repeats failed")
    table = render_table([("a", {"mrr": entry})], ["mrr"], "text")
    assert "50.0 [1]" in table
    assert table.endswith("[1] 4 of 5 repeats failed; one repeat, so no interval")


def test_invalid_tables_are_errors():
    with pytest.raises(ValueError, match="did you mean 'latex'"):
        render_table(ROWS, ["recall@1"], "latx")
    with pytest.raises(ValueError, match="did you mean 'recall@1'"):
        render_table(ROWS, ["recal@1"])
    with pytest.raises(ValueError, match="ends with a metric"):
        render_table([("a", {" ": TableEntry(None)})], [" "])
    with pytest.raises(ValueError, match="cannot be the best"):
        TableEntry(None, bold=True)


# names


marked = st.text(alphabet=st.sampled_from(r"\`*_[]()#<>&|~-+.! ab1"), max_size=12)


@given(st.lists(st.text(max_size=12) | marked, min_size=1, max_size=3))
@settings(deadline=None)
def test_markdown_shows_any_name_unchanged(names):
    rows = [(name, {"mrr": TableEntry(Interval(0.5, 0.1, 2))}) for name in names]
    checked = cells(render_table(rows, ["mrr"], "markdown"))
    assert len(checked) == len(names) + 1
    for name, row in zip(names, checked[1:], strict=True):
        expected = "".join(c if c.isprintable() else "\ufffd" for c in " ".join(name.split()))
        assert row == [expected, "50.0 ± 10.0"]


@pytest.mark.parametrize("caption", ["# one", "- one", "+ one", "1. one", "12) one", "> one", "*one*", "<b>one</b>"])
def test_a_caption_begins_neither_heading_nor_list(caption):
    tokens = MarkdownIt("commonmark").parse(render_table(ROWS, ["rho@1"], "markdown", caption))
    assert tokens[0].type == "paragraph_open"
    assert "".join(child.content for child in tokens[1].children) == caption


def read_latex(text):
    """The characters that LaTeX would print, for the commands that an escape may use; anything else is an error."""
    characters = {"textbackslash": "\\", "textasciitilde": "~", "textasciicircum": "^"}
    characters |= {"textless": "<", "textgreater": ">", "textbar": "|"}
    pattern = r"\\([&%$#_{}])|\\([a-z]+)\{\}|(\$\\pm\$)|\{([\[*`]?)\}|([^\\{}&%$#_~^])"
    printed, position = "", 0
    while position < len(text):
        result = re.compile(pattern).match(text, position)
        assert result, text[position:]
        symbol, command, sign, guarded, plain = result.groups()
        printed += symbol or (characters[command] if command else "") or ("±" if sign else "") or guarded or plain or ""
        position = result.end()
    return printed


@given(st.text(alphabet=st.sampled_from(r"\&%$#_{}~^<>|[]*`'-± aR5"), max_size=12))
def test_latex_prints_any_name_unchanged(name):
    escaped = escape_latex(name)
    assert read_latex(escaped) == name
    assert "--" not in escaped  # would print a dash
    assert not escaped.lstrip().startswith(("[", "*"))  # would be an argument of the line end before it


def test_examples_of_escaped_names():
    assert escape_latex(r"a\b---c") == r"a\textbackslash{}b-{}-{}-c"
    assert escape_markdown("R_50 <b> [x](y)") == r"R\_50 &lt;b&gt; \[x\](y)"
    assert cells(format_markdown([["a", "b"], [escape_markdown("~~x~~ | y"), "1"]])) == [["a", "b"], ["~~x~~ | y", "1"]]


@pytest.mark.parametrize("style", STYLES)
def test_names_stay_on_one_line(style):
    rows = [("two\nlines\t\x1b[31m", {"mrr": TableEntry(None, note="why\nnot")})]
    plain = render_table([("two lines", {"mrr": TableEntry(None, note="why not")})], ["mrr"], style)
    table = render_table(rows, ["mrr"], style)
    assert len(table.splitlines()) == len(plain.splitlines())
    assert "\x1b" not in table


def test_wide_names_keep_the_columns_straight_and_markup_is_plain():
    lines = format_text([["method", "x"], ["[bold]度量[/bold]", "1"], ["a" * 300, "2"]]).splitlines()
    assert "[bold]度量[/bold]" in lines[3]
    assert len(lines[4]) == len(lines[0]) == len(lines[3]) + 2  # two characters are as wide as four


def test_text_has_no_colors_whatever_the_environment(monkeypatch):
    before = render_table(ROWS, ["recall@1"])
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "20")
    assert render_table(ROWS, ["recall@1"]) == before


def test_tables_of_ready_cells():
    assert format_markdown([["a", "b"], ["1", "2"]], ["note"], "top").splitlines() == [
        *("top", "", "| a | b |", "|---|---:|", "| 1 | 2 |", "", "note")
    ]
    assert r"1 & 2 \\" in format_latex([["a", "b"], ["1", "2"]]).splitlines()


# from results to rows


def repeats(*values):
    return dict(enumerate(values))


CLEAR = {
    "a": {"recall@1": repeats(0.60, 0.62, 0.61), "rho@1": repeats(0.60, 0.62, 0.61)},
    "b": {"recall@1": repeats(0.70, 0.73, 0.71), "rho@1": repeats(0.70, 0.73, 0.71)},
}


def bold(rows):
    return {(name, column) for name, entries in rows for column, entry in entries.items() if entry.bold}


def test_the_best_is_bold_if_significantly_better_and_rho_is_minimized():
    rows = assemble_rows(CLEAR)
    assert bold(rows) == {("b", "recall@1"), ("a", "rho@1")}
    assert dict(rows)["a"]["recall@1"].interval == compute_interval([0.60, 0.62, 0.61])


def test_nothing_is_bold_where_the_best_is_not_significantly_better():
    near = {**CLEAR, "c": {"recall@1": repeats(0.72, 0.70, 0.71)}}
    assert bold(assemble_rows(near)) == {("a", "rho@1")}


def test_a_failed_method_counts_and_one_that_was_never_run_does_not():
    failed = {**CLEAR, "c": {"recall@1": {}}}
    rows = assemble_rows(failed, notes={"c": {"recall@1": "out of memory"}})
    assert bold(rows) == {("a", "rho@1")}
    assert dict(rows)["c"] == {"recall@1": TableEntry(None, note="out of memory")}
    rows = assemble_rows({**CLEAR, "c": {}}, published={"b": {"recall@1": 70.9}, "hdc": {"recall@1": 80.0}})
    assert bold(rows) == {("b", "recall@1"), ("a", "rho@1")}
    assert [name for name, _ in rows] == ["a", "b", "c", "hdc"]
    assert dict(rows)["b"]["recall@1"].published == 70.9
    assert dict(rows)["hdc"] == {"recall@1": TableEntry(None, 80.0)}


def test_columns_in_which_all_failed_are_shown_as_missing():
    rows = assemble_rows({"a": {"nmi": {}}, "b": {"nmi": {}}})
    assert cells(render_table(rows, ["nmi"], "markdown"))[1:] == [["a", "- <sup>1</sup>"], ["b", "- <sup>1</sup>"]]


def test_one_method_alone_is_not_bold():
    assert bold(assemble_rows({"a": CLEAR["a"]})) == set()


# comparisons


def test_differences_have_the_unit_of_their_metric():
    assert (format_difference("cub map@r", -0.0123, 0.004), difference_unit("cub map@r")) == (
        "-1.23 ± 0.40",
        ", percentage points",
    )
    assert (format_difference("rho@1", 0.0123, 0.004), difference_unit("rho@1")) == ("+0.0123 ± 0.0040", "")
    assert format_difference("map@r", 0.01, math.nan) == "+1.00"
    assert format_difference("map@r", math.nan, math.nan) == "-"


def test_every_p_has_as_many_digits():
    assert [format_probability(p) for p in (1.0, 0.1, 0.012, 0.0006, 0.0004, 0.0)] == [
        *("1.000", "0.100", "0.012", "0.001", "< 0.001", "< 0.001")
    ]


@pytest.mark.parametrize("repeats", [2, 3, 4, 5, 10])
def test_few_repeats_are_cautioned_about(repeats):
    caution = describe_caution(repeats)
    assert caution == "" if repeats >= 5 else caution.startswith(f"caution: with {repeats} repeats the test relies on")


def test_the_best_is_bold_by_the_test_of_the_suite():
    """Six repeats of three methods: no rank test of three pairs can be significant after the correction."""
    results = {
        name: {"recall@1": {seed: base + 0.001 * ((seed * step) % 5) for seed in range(6)}}
        for name, base, step in (("a", 0.6, 1), ("b", 0.5, 2), ("c", 0.4, 3))
    }
    for test, bold in (("t", True), ("rank", False)):
        rows = dict(assemble_rows(results, test=test))
        assert [rows[name]["recall@1"].bold for name in "abc"] == [bold, False, False]


def test_an_untrained_method_is_not_bold_and_one_that_is_not_in_the_column_does_not_matter():
    assert bold(assemble_rows(CLEAR, untrained=["b", "elsewhere"])) == set()
