"""The demo trains every method with two seeds, compares them on unseen classes, and does nothing twice."""

import csv

import pytest

from kinfold import data, demo, metrics
from kinfold.report.content import collect_content
from kinfold.training import Run


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    return folder, demo.demo(folder, steps=3, glyphs=some())


def some():
    """Every eleventh character."""
    glyphs = data.load("glyphs")
    return glyphs.where(glyphs.labels % 11 == 0, relabel=True)


def test_every_method_has_a_score_for_every_seed(shown):
    folder, rows = shown
    assert {row.method for row in rows} == {demo.PIXELS, demo.UNTRAINED, *demo.METHODS}
    assert {"dro-topk", "margin + distance-weighted", "proxy-anchor"} <= {row.method for row in rows}
    assert all(len(row.scores) == 2 for row in rows if row.method != demo.PIXELS)
    with open(folder / "scores.csv") as file:
        written = [*csv.DictReader(file)]
    assert len(written) == 2 * (1 + 2 * (len(demo.METHODS) + 1))
    pixels = next(row for row in rows if row.method == demo.PIXELS)
    test = some().subset("test")
    assert pixels.scores == [
        metrics.evaluate(test.items.array().reshape(len(test), -1) / 255.0, test.labels, metrics=demo.NAMES)
    ]


def test_the_table_shows_the_mean_and_both_seeds(shown):
    folder, rows = shown
    table = (folder / "table.md").read_text()
    for row in rows:
        assert f"| {row.method} | {100 * row.mean('recall@1'):.1f}" in table
    low, high = rows[-1].spread("recall@1")
    assert f"({100 * low:.1f} to {100 * high:.1f})" in table
    assert "| method | recall@1, %: mean (range of 2 seeds) | map@r, %: mean (range of 2 seeds) |" in table
    assert demo.DemoRow("x", [{"recall@1": 0.1}, {"recall@1": 0.3}]).mean("recall@1") == pytest.approx(0.2)


def test_classes_that_train_select_and_test_have_nothing_in_common(shown):
    folder, _ = shown
    run = Run.open(folder / "dro-topk-0", some())
    classes = [set(run.data(split).classes) for split in ("train", "validation", "test")]
    assert sum(map(len, classes)) == len(set.union(*classes)) == len(some().classes)
    assert run.scores["selection"] == "validation"


def test_what_is_finished_is_not_done_again(shown):
    folder, rows = shown
    told = []
    again = demo.demo(folder, steps=3, tell=lambda stage, share: told.append(share), glyphs=some())
    assert [row.scores for row in again] == [row.scores for row in rows]
    assert set(told) == {0.0, 1.0}  # no step between


def test_what_is_finished_is_not_told_as_if_it_trained_again(shown, tmp_path):
    stages = []
    demo.demo(shown[0], steps=3, tell=lambda stage, share: stages.append(stage), glyphs=some())
    names = demo.run_names()
    assert len(names) == len(demo.METHODS) * len(demo.SEEDS)
    told = [*dict.fromkeys(stage for stage in stages if stage.startswith(tuple(demo.METHODS)))]
    assert told == [f"{name}, already trained" for name in names]
    assert {demo.PIXELS, f"{demo.UNTRAINED}, seed 0"} < {*stages}


def test_the_report_has_the_rows_of_the_table_in_its_order(shown):
    folder, rows = shown
    (table,) = collect_content(folder, points=20, dataset=some())["tables"]
    assert [row["method"] for row in table["rows"]] == [row.method for row in rows]
    means = [row.mean("recall@1") for row in rows]
    assert means == sorted(means, reverse=True)
    for row, own in zip(table["rows"], rows, strict=True):
        for name in demo.NAMES:
            assert row["cells"][name]["mean"] == pytest.approx(own.mean(name))
            assert row["cells"][name]["count"] == len(own.scores)
        assert bool(row.get("reference")) == (own.method in (demo.PIXELS, demo.UNTRAINED))
        assert bool(row["command"]) != bool(row.get("reference"))
    assert table["sorted"] == "recall@1"
    assert f"for reference, and no part of the comparisons: {demo.PIXELS}; {demo.UNTRAINED}" in table["notes"]
    compared = {name for row in table["comparisons"] for name in (row["first"], row["second"])}
    # three steps leave some methods where they began: these are named, and the others are compared
    left_out = {
        name for name in demo.METHODS if any(note.startswith(f"not compared: {name}: ") for note in table["notes"])
    }
    trained = {*demo.METHODS} - left_out
    assert compared == (trained if len(trained) > 1 else set())
    for name in left_out:
        runs = [Run.open(folder / f"{name.replace(' + ', '-')}-{seed}", some()) for seed in demo.SEEDS]
        assert any(run.scores["selected_start"] for run in runs)


def test_no_more_typefaces_are_promised_than_there_are(shown):
    glyphs = data.load("glyphs")
    most = int(glyphs.labels.bincount().max())
    assert int(glyphs.labels.bincount().min()) < most == 22
    assert "in up to 22 typefaces each" in (shown[0] / "table.md").read_text()
