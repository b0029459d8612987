"""The demo trains every method with two seeds, compares them on unseen classes, and trains no run twice."""

import csv

import pytest

from kinfold import data, demo, metrics
from kinfold.report.content import collect_content
from kinfold.training import Run


@pytest.fixture(scope="module")
def demo_rows(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    return folder, demo.run_demo(folder, steps=3, glyphs=small_glyphs())


def small_glyphs():
    """Every eleventh character."""
    glyphs = data.load("glyphs")
    return glyphs.where(glyphs.labels % 11 == 0, relabel=True)


def test_every_method_has_a_score_for_every_seed(demo_rows):
    folder, rows = demo_rows
    assert {row.method for row in rows} == {demo.PIXELS, demo.UNTRAINED, *demo.METHODS}
    assert {"dro-topk", "margin + distance-weighted", "proxy-anchor"} <= {row.method for row in rows}
    assert all(len(row.scores) == 2 for row in rows if row.method != demo.PIXELS)
    with open(folder / "scores.csv") as file:
        written = [*csv.DictReader(file)]
    assert len(written) == 2 * (1 + 2 * (len(demo.METHODS) + 1))
    pixels = next(row for row in rows if row.method == demo.PIXELS)
    test = small_glyphs().subset("test")
    assert pixels.scores == [
        metrics.evaluate(test.items.array().reshape(len(test), -1) / 255.0, test.labels, metrics=demo.METRICS)
    ]


def test_the_table_shows_the_mean_and_both_seeds(demo_rows):
    folder, rows = demo_rows
    table = (folder / "table.md").read_text()
    for row in rows:
        assert f"| {row.method} | {100 * row.mean('recall@1'):.1f}" in table
    low, high = rows[-1].spread("recall@1")
    assert f"({100 * low:.1f} to {100 * high:.1f})" in table
    assert "| method | recall@1, %: mean (range of 2 seeds) | map@r, %: mean (range of 2 seeds) |" in table
    assert demo.DemoRow("x", [{"recall@1": 0.1}, {"recall@1": 0.3}]).mean("recall@1") == pytest.approx(0.2)


def test_training_validation_and_test_classes_are_disjoint(demo_rows):
    folder, _ = demo_rows
    run = Run.open(folder / "dro-topk-0", small_glyphs())
    classes = [set(run.data(split).classes) for split in ("train", "validation", "test")]
    assert sum(map(len, classes)) == len(set.union(*classes)) == len(small_glyphs().classes)
    assert run.scores["selection"] == "validation"


def test_finished_runs_are_not_trained_again(demo_rows):
    folder, rows = demo_rows
    fractions = []
    again = demo.run_demo(
        folder, steps=3, progress=lambda stage, fraction: fractions.append(fraction), glyphs=small_glyphs()
    )
    assert [row.scores for row in again] == [row.scores for row in rows]
    assert set(fractions) == {0.0, 1.0}  # no step between


def test_finished_runs_are_reported_as_already_trained(demo_rows, tmp_path):
    stages = []
    demo.run_demo(demo_rows[0], steps=3, progress=lambda stage, fraction: stages.append(stage), glyphs=small_glyphs())
    names = demo.list_run_names()
    assert len(names) == len(demo.METHODS) * len(demo.SEEDS)
    reported = [*dict.fromkeys(stage for stage in stages if stage.startswith(tuple(demo.METHODS)))]
    assert reported == [f"{name}, already trained" for name in names]
    assert {demo.PIXELS, f"{demo.UNTRAINED}, seed 0"} < {*stages}


def test_the_report_has_the_rows_of_the_table_in_its_order(demo_rows):
    folder, rows = demo_rows
    (table,) = collect_content(folder, points=20, dataset=small_glyphs())["tables"]
    assert [row["method"] for row in table["rows"]] == [row.method for row in rows]
    means = [row.mean("recall@1") for row in rows]
    assert means == sorted(means, reverse=True)
    for row, expected in zip(table["rows"], rows, strict=True):
        for name in demo.METRICS:
            assert row["cells"][name]["mean"] == pytest.approx(expected.mean(name))
            assert row["cells"][name]["count"] == len(expected.scores)
        assert bool(row.get("reference")) == (expected.method in (demo.PIXELS, demo.UNTRAINED))
        assert bool(row["command"]) != bool(row.get("reference"))
    assert table["sorted"] == "recall@1"
    assert f"for reference, and no part of the comparisons: {demo.PIXELS}; {demo.UNTRAINED}" in table["notes"]
    compared = {name for row in table["comparisons"] for name in (row["first"], row["second"])}
    # after three steps some methods select their initial weights: these are named, and the others are compared
    left_out = {
        name for name in demo.METHODS if any(note.startswith(f"not compared: {name}: ") for note in table["notes"])
    }
    trained = {*demo.METHODS} - left_out
    assert compared == (trained if len(trained) > 1 else set())
    for name in left_out:
        runs = [Run.open(folder / f"{name.replace(' + ', '-')}-{seed}", small_glyphs()) for seed in demo.SEEDS]
        assert any(run.scores["selected_start"] for run in runs)


def test_the_text_names_the_largest_number_of_typefaces(demo_rows):
    glyphs = data.load("glyphs")
    most = int(glyphs.labels.bincount().max())
    assert int(glyphs.labels.bincount().min()) < most == 22
    assert "in up to 22 typefaces each" in (demo_rows[0] / "table.md").read_text()
