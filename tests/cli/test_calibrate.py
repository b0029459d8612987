"""`kinfold calibrate`: a run with many classes is calibrated, exported and used in a gallery."""

import json
import shutil

import numpy as np
import pytest

from kinfold import Run
from kinfold.calibration import read_calibration
from kinfold.training import train
from tests.cli.runs import SHORT, feature_rows, run


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("calibrate")
    rows, labels = feature_rows()
    np.savez(folder / "rows.npz", embeddings=rows, labels=labels, split=np.where(labels < 8, "train", "test"))
    data = {"name": "features", "root": str(folder / "rows.npz"), "validation": 0.0}
    train({"data": data, "model": {"dim": 8}, **SHORT}, folder / "run")
    return folder


def test_a_threshold_is_stated_stored_and_exported(capsys, monkeypatch, trained, tmp_path):
    code, out, _ = run(capsys, monkeypatch, "calibrate", trained / "run", "--far", "0.1")
    assert code == 0
    assert "guarantee: for two new classes, drawn as these 22 were" in out
    stored = read_calibration(Run.open(trained / "run"))
    assert stored.far == 0.1
    code, out, _ = run(capsys, monkeypatch, "calibrate", trained / "run", "--far", "0.01", "--json")
    result = json.loads(out)
    assert (code, result["kind"], round(result["smallest_far"], 4)) == (0, "estimate", round(1 / 12, 4))
    code, out, _ = run(capsys, monkeypatch, "export", trained / "run", "--out", tmp_path / "m.onnx", "--json")
    metadata = json.loads(out)["metadata"]
    assert float(metadata["threshold"]) == pytest.approx(result["threshold"])
    assert (metadata["far"], metadata["threshold_kind"]) == ("0.01", "estimate")


def test_a_calibration_of_other_weights_is_refused(trained, tmp_path):
    shutil.copytree(trained / "run", tmp_path / "copy")
    opened = Run.open(tmp_path / "copy")
    (opened.folder / "model.safetensors").unlink()
    (opened.folder / "best.safetensors").unlink(missing_ok=True)
    shutil.copy(next((trained / "run" / "checkpoints").glob("*.safetensors")), opened.folder / "best.safetensors")
    if (opened.folder / "calibration.json").is_file():
        with pytest.raises(ValueError, match="of other weights"):
            read_calibration(opened)


def test_a_gallery_answers_none_of_these(capsys, monkeypatch, trained, tmp_path):
    gallery, file = tmp_path / "g", trained / "rows.npz"
    options = ["--run", trained / "run"]
    assert run(capsys, monkeypatch, "gallery", "build", gallery, file, *options, "--split", "train")[0] == 0
    rows = feature_rows()[0]
    np.save(tmp_path / "known.npy", rows[:1])
    np.save(tmp_path / "opposite.npy", -rows[:1])
    code, _, errors = run(capsys, monkeypatch, "gallery", "identify", gallery, tmp_path / "known.npy", *options)
    assert (code, "kinfold calibrate RUN --gallery" in errors) == (2, True)
    code, out, _ = run(capsys, monkeypatch, "calibrate", trained / "run", "--far", "0.1", "--gallery", gallery)
    assert (code, "at most 0.1, by 22 probe classes" in out) == (0, True)
    code, out, _ = run(capsys, monkeypatch, "gallery", "identify", gallery, tmp_path / "known.npy", *options)
    assert (code, "threshold" in out, "none of these" in out) == (0, True, False)
    code, out, _ = run(
        capsys, monkeypatch, "gallery", "identify", gallery, tmp_path / "opposite.npy", *options, "--json"
    )
    answer = json.loads(out)["queries"][0]
    assert (code, answer["label"]) == (0, None)
