"""The page over several tables links their pages, and says of every row whether it was run, or why not."""

import json
from dataclasses import replace

import pytest

from kinfold.papers.plan import PlanOptions, plan_table
from kinfold.papers.published import load_table
from kinfold.papers.reproduce import Reproduction
from kinfold.report.reproduction import ReproductionIndex


@pytest.fixture
def plans():
    return [plan_table(load_table(name), PlanOptions()) for name in ("dro/table3", "dro/table4")]


def reproduce(plan, skipped=(), **fields):
    ours = {row.name: {"recall@1": {0: 0.5} if row.name not in skipped else {}} for row in plan.rows}
    return Reproduction(plan, "in-shop", ["recall@1"], ours, **fields)


@pytest.fixture
def index(plans, tmp_path):
    return ReproductionIndex(plans, [tmp_path / "dro" / "table3", tmp_path / "dro" / "table4"], tmp_path / "index.html")


def states_of(index, plan):
    return {each.row: (each.state, each.reason) for each in index.list_states(plan)}


def test_every_row_is_run_failed_a_number_or_waiting(index, plans):
    failed = {"runs/in-shop/dro-kl-margin/seed-0/fold-0": "out of memory <x>"}
    start = {"dro-topk-margin": "1 of 1 repeats selected the start"}
    index.add(reproduce(plans[0], ["dro-kl-margin"], failed=failed, untrained=start))
    states = states_of(index, plans[0])
    assert states.keys() == {row.name for row in plans[0].table.rows}
    assert states["dro-kl-margin"] == ("failed", "out of memory <x>")
    assert states["dro-topk-margin"] == ("run", "1 of 1 repeats selected the start")
    assert states["fashion-net"][0] == "number only"
    assert "landmarks" in states["fashion-net"][1]
    assert {state for state, _ in states_of(index, plans[1]).values()} == {"waiting"}
    document = json.loads(index.path.with_suffix(".json").read_text())
    assert document["rows"] == {"run": 10, "failed": 1, "number only": 1, "waiting": 6}
    page = index.path.read_text()
    assert "10 run, 1 failed, 1 number only, 6 waiting" in page
    assert "out of memory &lt;x&gt;" in page


def test_a_row_whose_repeats_failed_in_part_is_failed(index, plans):
    index.add(reproduce(plans[0], failed={"runs/in-shop/dro-kl-margin/seed-1/fold-0": "killed"}))
    assert states_of(index, plans[0])["dro-kl-margin"] == ("failed", "killed")
    assert states_of(index, plans[0])["dro-topk-margin"] == ("run", "")


def test_a_row_without_a_number_is_never_called_run(index, plans):
    index.add(reproduce(plans[0], ["dro-kl-margin"]))
    assert states_of(index, plans[0])["dro-kl-margin"] == ("failed", "no number")
    index.add(reproduce(plans[0], ["dro-kl-margin"], failed={"in-shop, dro-kl-margin": "all trials failed"}))
    assert states_of(index, plans[0])["dro-kl-margin"] == ("failed", "all trials failed")


def test_pages_are_linked_once_they_are_written(index, plans):
    index.write()
    assert "published.html" not in index.path.read_text()
    index.add(reproduce(plans[1]))
    assert '<a href="dro/table4/in-shop/published.html">in-shop</a>' in index.path.read_text()
    assert "dro/table3/in-shop/published.html" not in index.path.read_text()


def test_the_page_loads_nothing_and_escapes_titles(index, plans):
    named = replace(plans[0].table, title="<script>alert(1)</script>")
    index.plans = [replace(plans[0], table=named), plans[1]]
    page = index.write().read_text()
    assert "<script" not in page
    assert "default-src 'none'" in page
    assert "http-equiv" in page
    assert "src=" not in page.replace("default-src", "").replace("style-src", "")
