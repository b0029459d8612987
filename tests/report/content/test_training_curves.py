"""Training curves: means and bands over seeds, and the scale of their axes."""

import pytest

from kinfold.report import collect_content
from kinfold.report.charts import Series
from kinfold.report.content.training_curves import needs_log_scale
from kinfold.training import Run
from tests.report.runs import feature_run, find_remarks


def test_training_curves_are_means_with_the_smallest_and_largest(bench, of_bench):
    chart = next(chart for chart in of_bench["charts"]["training"] if chart["title"] == "validation map@r")
    line = next(series for series in chart["series"] if series["name"] == "triplet")
    by_step = {}
    for seed in (0, 1, 2):
        for event in Run.open(bench / "runs" / "tiny" / "triplet" / f"seed-{seed}" / "fold-0").events:
            if event["event"] == "evaluation":
                by_step.setdefault(event["step"], []).append(event["map@r"])
    assert line["x"] == sorted(by_step)
    for index, step in enumerate(line["x"]):
        values = by_step[step]
        expected = (sum(values) / 3, min(values), max(values))
        assert (line["y"][index], line["low"][index], line["high"][index]) == pytest.approx(expected, rel=1e-4)
    assert of_bench["charts"]["training"][0]["title"] == "loss"


def test_one_seed_has_no_band_and_no_interval(finished):
    content = collect_content(finished.folder)
    assert content["kind"] == "run"
    assert find_remarks(content, "one seed")
    assert content["charts"]["training"][0]["series"][0]["low"] == [None] * 6
    cell = content["tables"][0]["rows"][0]["cells"]["recall@1"]
    assert (cell["mean"], cell["half_width"]) == (finished.scores["test"]["recall@1"], None)


def test_fractions_have_limits_and_other_values_have_none(tmp_path):
    training = collect_content(feature_run(tmp_path, {"evaluation": {"diagnose": "always"}}).folder)["charts"][
        "training"
    ]
    shares = {chart["title"]: chart["y"]["limits"] == [0, 1] for chart in training}
    assert shares["validation map@r"]
    assert not shares["loss"]
    assert not shares["train rho@1"]


def test_losses_of_different_size_have_a_log_axis(bench, monkeypatch):
    def series(*values):
        return Series("a", range(len(values)), values, 0)

    assert needs_log_scale([series(11.0, 9.0, None, 7.0), series(0.5, 0.0, 0.3)])
    assert not needs_log_scale([series(1.0, 0.9), series(0.5, 0.3)])
    assert not needs_log_scale([series(11.0, 9.0), series(0.5, -0.3)])  # which has no logarithm
    assert not needs_log_scale([series(11.0, 0.1)])  # nobody beside it
    assert not needs_log_scale([series(), series(1.0)])
    for far, titles in ((1.0, ["loss"]), (1e9, [])):
        monkeypatch.setattr("kinfold.report.content.training_curves.MAX_LOSS_RATIO", far)
        training = collect_content(bench)["charts"]["training"]
        assert [chart["title"] for chart in training if chart["y"]["scale"] == "log"] == titles
