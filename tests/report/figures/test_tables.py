"""Result tables in Markdown and LaTeX."""

import re

from kinfold.report.figures.tables import format_tables


def test_tables_have_the_numbers_of_the_content(content):
    (name, texts), *_ = format_tables(content)
    cell = content["tables"][0]["rows"][0]["cells"]["recall@1"]
    assert name == "table rows: test classes"
    for kind in ("md", "tex"):
        assert f"{100 * cell['mean']:.1f}" in texts[kind]
        assert "one repeat, so no interval" in texts[kind]
    assert re.search(r"\\begin\{tabular\}", texts["tex"])


def test_tables_of_comparisons_have_signs_and_stars():
    cell = {"mean": 0.5, "half_width": 0.01, "count": 3, "published": 51.2, "bold": True, "note": ""}
    row = {"method": "a_b", "cells": {"recall@1": cell}, "command": "", "configuration": "", "quoted": None}
    other = {**row, "method": "c", "cells": {"recall@1": {**cell, "bold": False, "mean": 0.4}}}
    column = {"key": "recall@1", "title": "recall@1, %", "factor": 100, "decimals": 1, "smaller_is_better": False}
    compared = {"first": "a_b", "second": "c", "difference": 0.1, "half_width": 0.02, "p": 0.001, "adjusted": 0.001}
    compared |= {"significant": True, "column": "recall@1"}
    table = {"caption": "t", "columns": [column], "rows": [row, other], "notes": ["50 % & more"]}
    texts_by_name = dict(format_tables({"tables": [{**table, "comparisons": [compared]}]}))
    assert r"| a\_b | **50.0 ± 1.0** | 51.2 |" in texts_by_name["table t"]["md"]
    assert "% 50 % & more" in texts_by_name["table t"]["tex"]
    assert r"| a\_b - c | +10.00 ± 2.00 | 0.001 | 0.001 * |" in texts_by_name["comparisons t"]["md"]
    assert r"a\_b - c & +10.00 $\pm$ 2.00 & 0.001 & 0.001 {*} \\" in texts_by_name["comparisons t"]["tex"]
    assert "| difference | recall@1, percentage points | p | p, Holm |" in texts_by_name["comparisons t"]["md"]
    insignificant = {**compared, "significant": False, "p": 0.1, "adjusted": None}
    text = dict(format_tables({"tables": [{**table, "comparisons": [insignificant]}]}))["comparisons t"]["md"]
    assert "| 0.100 | - |" in text
    assert "*" not in text
    assert "no difference is significant" in text
