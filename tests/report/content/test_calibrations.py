"""A stored calibration is shown with its curves and the chosen point; one of other weights is named, not shown."""

import json
import shutil

import numpy as np
import pytest

from kinfold import Run
from kinfold.calibration import calibrate_run
from kinfold.report import collect_content
from kinfold.training import train
from tests.cli.runs import SHORT, feature_rows
from tests.report.runs import find_remarks


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory):
    folder = tmp_path_factory.mktemp("calibrated")
    rows, labels = feature_rows()
    np.savez(folder / "rows.npz", embeddings=rows, labels=labels, split=np.where(labels < 8, "train", "test"))
    data = {"name": "features", "root": str(folder / "rows.npz"), "validation": 0.0}
    train({"data": data, "model": {"dim": 8}, **SHORT}, folder / "run")
    return folder / "run", calibrate_run(Run.open(folder / "run"), 0.1)


def test_the_chosen_point_lies_on_the_curves(calibrated):
    folder, result = calibrated
    content = collect_content(folder, points=10)
    roc, det, probability, reliability = content["charts"]["calibration"]
    assert [chart["title"] for chart in (roc, det)] == ["ROC", "DET"]
    curve, point = roc["series"]
    assert curve["x"] == pytest.approx(result.curve["far"], rel=1e-3)
    assert (point["x"], point["y"]) == ([result.measured_far], [result.tar])
    assert det["series"][1]["y"] == [1 - result.tar]
    assert f"{result.threshold:.4f}" in point["name"]
    assert probability["series"][0]["x"][0] < probability["series"][0]["x"][-1]
    assert reliability["series"][0]["y"] == pytest.approx(result.reliability.observed, rel=1e-3)
    (described,) = content["calibrations"]
    assert described["sentences"] == result.describe()
    assert len(described["identification"]) == len(result.identification)


def test_a_calibration_of_other_weights_is_not_shown(calibrated, tmp_path):
    folder, _ = calibrated
    copy = tmp_path / "run"
    shutil.copytree(folder, copy)
    text = (copy / "calibration.json").read_text()
    fingerprint = json.loads(text)["origin"]["fingerprint"]
    (copy / "calibration.json").write_text(text.replace(fingerprint, "0" * len(fingerprint)))
    content = collect_content(copy, points=10)
    assert content["calibrations"] == []
    assert find_remarks(content, "the calibration of")
    assert str(tmp_path) not in json.dumps(content)
