"""The demo compares four losses on unseen characters, and uses the best network: search, threshold, page."""

import json
from dataclasses import replace

import numpy as np
import pytest

from kinfold import data, demo, metrics
from kinfold.experiments import compute_interval
from kinfold.report.content import collect_content
from tests.cli.runs import run

CLASSES = 60


@pytest.fixture(scope="module")
def small_demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    suite = demo.build_suite(steps=4, classes=CLASSES)
    return folder, demo.run_demo(folder, replace(suite, method=suite.method[::3], seeds=[0, 1]))


def test_every_method_has_a_score_for_every_seed(small_demo):
    _, result = small_demo
    assert demo.build_suite().methods == ["multi-similarity", "margin", "dro-topk", "proxy-anchor"]
    assert result.bench.suite.methods == ["multi-similarity", "proxy-anchor"]
    for metric in ("recall@1", "map@r"):
        values = result.bench.values("glyphs", "separated", metric)
        assert {name: [*scores] for name, scores in values.items()} == {name: [0, 1] for name in values}


def test_the_best_method_has_the_best_mean(small_demo):
    _, result = small_demo
    values = result.bench.values("glyphs", "separated", "recall@1")
    means = {name: sum(scores.values()) for name, scores in values.items()}
    assert means[result.best] == max(means.values())
    assert result.run.folder.parent.name == result.best


def test_pixels_are_measured_on_the_same_characters(small_demo):
    folder, result = small_demo
    test = data.load("glyphs", classes=CLASSES).subset("test")
    pixels = np.stack([np.ravel(test.items[row]) for row in range(len(test))]) / 255.0
    assert result.pixels == metrics.evaluate(pixels, test.labels, metrics=["recall@1", "map@r"])
    (table,) = collect_content(folder, points=20)["tables"]
    rows = {row["method"]: row for row in table["rows"]}
    assert rows[demo.PIXELS]["reference"]
    assert rows[demo.PIXELS]["cells"]["recall@1"]["mean"] == pytest.approx(result.pixels["recall@1"])


def test_the_gain_is_stated_with_its_interval(small_demo):
    _, result = small_demo
    gains = result.bench.values("glyphs", "separated", "recall@1", "gain")[result.best]
    interval = compute_interval([*gains.values()])
    line = f"training gained {100 * interval.mean:.1f} ± {100 * interval.half_width:.1f} points of recall@1"
    assert line in result.describe_comparison()


def test_neighbors_of_another_class_are_marked(small_demo):
    _, result = small_demo
    text = result.describe_search()
    wrong = [item for item in result.neighbors.neighbors if item.label != result.neighbors.query.label]
    assert len(result.neighbors.neighbors) == demo.NEIGHBORS
    assert text.count("(wrong)") == len(wrong)


def test_the_threshold_is_stored_in_the_run(small_demo):
    _, result = small_demo
    stored = json.loads((result.run.folder / "calibration.json").read_text())
    assert stored["threshold"] == result.calibration.threshold
    assert result.calibration.origin["split"] == "test"


def test_the_command_reuses_finished_runs_and_prints_all_parts(small_demo, capsys, monkeypatch):
    folder, result = small_demo
    monkeypatch.setattr("kinfold.demo.build_suite", lambda steps: result.bench.suite)
    code, printed, errors = run(capsys, monkeypatch, "demo", "--out", folder, "--jobs", 1)
    assert code == 0
    assert "left: runs/" not in errors  # nothing was trained again
    for title in ("Compare  (kinfold bench", "Search  (kinfold search", "Threshold  (kinfold calibrate", "Look  ("):
        assert title in printed
    assert result.describe_search() in printed
    assert (folder / "report.html").is_file()


def test_the_command_prints_json(small_demo, capsys, monkeypatch):
    folder, result = small_demo
    monkeypatch.setattr("kinfold.demo.run_demo", lambda *_, **options: result)
    monkeypatch.setattr("kinfold.report.collect_content", lambda folder, points: {})
    monkeypatch.setattr("kinfold.report.write_page", lambda content, path: path)
    code, printed, _ = run(capsys, monkeypatch, "demo", "--out", folder, "--json")
    assert code == 0
    document = json.loads(printed)
    assert (document["best"], document["pixels"]) == (result.best, result.pixels)
    assert document["calibration"]["threshold"] == result.calibration.threshold


def test_the_suite_of_the_demo_claims_no_more_than_its_intervals_allow():
    suite = demo.build_suite()
    assert len(suite.seeds) >= 3
    assert suite.trials == 0  # settings are written down, nothing is searched on the way
    with pytest.raises(ValueError, match="steps must be at least 1"):
        demo.build_suite(steps=0)


def test_the_text_names_the_largest_number_of_typefaces():
    assert int(data.load("glyphs").labels.bincount().max()) == 22
    assert "in up to 22 typefaces each" in (demo.__doc__ or "")
