"""Our numbers beside the published ones, as text, Markdown and plain data."""

from dataclasses import replace

import pytest

from kinfold.papers.comparison import format_report, to_dictionary
from kinfold.papers.outline import format_plan, list_planned_rows
from kinfold.papers.plan import PlanOptions, plan_table
from kinfold.papers.reproduce import Reproduction
from tests.papers.tables import table


def test_our_numbers_are_beside_the_published_ones():
    plan = plan_table(table("dro/table1"), PlanOptions(seeds=2))
    ours = {"dro-topk-margin": {"recall@1": {0: 0.66, 1: 0.68}}, "dro-kl-margin": {"recall@1": {}}}
    result = Reproduction(plan, "cub", ["recall@1"], ours, failed={"runs/cub/dro-kl-margin/seed-0": "out of memory"})
    text = format_report(result)
    line = {text_line.split("│")[1].strip(): text_line for text_line in text.splitlines() if "│" in text_line}
    assert [run.strip() for run in line["DRO-TopK_M"].split("│")[2:4]] == ["67.0 ± 12.7", "67.4"]
    assert [run.strip() for run in line["DRO-KL_M"].split("│")[2:4]] == ["-", "67.7"]
    assert [run.strip() for run in line["Clustring (quoted from Oh Song et al. 2017)"].split("│")[2:4]] == ["-", "48.2"]
    assert "failed: runs/cub/dro-kl-margin/seed-0: out of memory" in text
    for caveat in table("dro/table1").caveats:
        assert f"- {caveat}" in text
    assert "DRO-KL_M: the paper draws pairs by their weights" in text
    assert "| DRO-TopK\\_M | 67.0 ± 12.7 | 67.4 |" in format_report(result, "markdown")
    entry = next(row for row in to_dictionary(result)["rows"] if row["row"] == "dro-topk-margin")
    assert entry["ours"]["recall@1"]["mean"] == pytest.approx(0.67)
    assert entry["published"]["recall@1"] == 67.4


def test_spreads_and_unreadable_numbers_are_shown_as_printed():
    plan = plan_table(table("revisiting/table9"), PlanOptions(rows=("histogram-spc-2",)))
    assert "│ 69.52 ± 0.10 │" in format_report(Reproduction(plan, "sop", ["recall@1"], {"histogram-spc-2": {}}))
    plan = plan_table(table("dro/k-sensitivity"), PlanOptions(rows=("dro-topk-margin@640",)))
    result = Reproduction(plan, "in-shop", ["recall@1"], {"dro-topk-margin@640": {"recall@1": {0: 0.5}}})
    line = next(each for each in format_report(result).splitlines() if "DRO-TopK_M" in each)
    assert [run.strip() for run in line.split("│")[2:5]] == ["640", "50.0", "unreadable"]


def test_published_numbers_keep_their_last_zero():
    plan = plan_table(table("revisiting/table4"), PlanOptions(rows=("angular",)))
    result = Reproduction(plan, "cub", ["recall@1"], {"angular": {"recall@1": {0: 0.5}}})
    assert "│ 62.10 ± 0.27 │" in format_report(result)
    assert "| 62.10 ± 0.27 |" in format_report(result, "markdown")
    (row,) = to_dictionary(result)["rows"]
    assert (row["published"]["recall@1"], row["printed"]["recall@1"]) == ([62.1, 0.27], "62.10 ± 0.27")
    assert "recall@1 62.10 ± 0.27" in format_plan(plan)
    assert list_planned_rows(plan)[0]["printed"]["cub"]["recall@1"] == "62.10 ± 0.27"


def test_a_report_explains_our_and_the_published_plus_minus_signs():
    ours = "± of ours: half width of the 95 % interval of the mean over 5 repeats"
    plan = plan_table(table("revisiting/table4"), PlanOptions(rows=("angular",)))
    result = Reproduction(plan, "cub", ["recall@1"], {"angular": {"recall@1": {0: 0.5, 1: 0.6}}})
    text = format_report(result)
    assert ours in text
    assert "± of published numbers: a standard deviation over the paper's runs; not to be compared" in text
    assert to_dictionary(result)["spread"]["published"] == "standard deviation"
    plan = plan_table(table("drml/table1"), PlanOptions(rows=("triplet",), seeds=5))
    text = format_report(Reproduction(plan, "cub", ["map@r separated"], {"triplet": {}}))
    assert ours in text
    assert "± of published numbers: the paper does not say; not to be compared" in text
    plan = plan_table(table("dro/table1"), PlanOptions(rows=("dro-kl-margin",)))
    assert "± of published" not in format_report(Reproduction(plan, "cub", ["recall@1"], {"dro-kl-margin": {}}))


def test_what_set_changed_is_said_beside_the_published_numbers():
    plan = plan_table(
        table("dro/table1"), PlanOptions(rows=("dro-kl-margin",), changes=("training.steps=1", "loss.gamma=0.5"))
    )
    result = Reproduction(plan, "cub", ["recall@1"], {"dro-kl-margin": {"recall@1": {0: 0.5}}})
    for style in ("text", "markdown"):
        text = format_report(result, style)
        assert "CHANGED by --set: training.steps=1, loss.gamma=0.5" in text.replace("\\", "")
        assert "- --set: training.steps: 7200 -> 1\n- --set: loss.gamma: 0.1 -> 0.5" in text
    kept = to_dictionary(result)
    assert kept["changes"] == ["training.steps=1", "loss.gamma=0.5"]
    assert kept["rows"][0]["settings"]["training"]["steps"] == 1
    assert "--set: training.steps: 7200 -> 1" in kept["notes"]
    assert "CHANGED" not in format_report(
        replace(result, plan=plan_table(table("dro/table1"), PlanOptions(rows=("dro-kl-margin",))))
    )
