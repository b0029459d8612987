"""`kinfold export` on real runs: what it writes is run by the runtimes themselves."""

import json
import re
import shutil

import numpy as np
import pytest
import torch
from PIL import Image

from kinfold.cli.export import describe_transform
from kinfold.data.pipelines import PIPELINES
from kinfold.data.transforms import Compose
from kinfold.models.export import DeployedModel
from kinfold.training import Run, train
from tests.cli.runs import SHORT, feature_run, glyph_files, image_run, run

onnxruntime = pytest.importorskip("onnxruntime", reason="the extra export is not installed")


def rows_of(path, inputs):
    if path.suffix == ".onnx":
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        return session.run(None, {session.get_inputs()[0].name: inputs})[0]
    with torch.inference_mode():
        return torch.export.load(path).module()(torch.from_numpy(inputs)).numpy()


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.parametrize("name", ["model.onnx", "model.pt2"])
def test_exported_image_models_give_the_embeddings_of_the_run(name, tmp_path, capsys, monkeypatch):
    out = tmp_path / name
    code, printed, errors = run(capsys, monkeypatch, "export", image_run(), "--out", out, "--json")
    assert code == 0, errors
    assert errors == ""
    report = json.loads(printed)
    assert report["bytes"] == out.stat().st_size
    assert report["difference"] < report["tolerance"] == 1e-4
    about = report["metadata"]
    assert (about["run"], about["distance"], about["mode"], about["size"]) == ("run", "cosine", "L", "28 x 28")
    assert about["dim"] == "8"
    assert "Warp(size=28" in about["transform"]
    space = Run.open(image_run())
    data = space.data("test")
    # the images are read here with Pillow alone
    pixels = np.stack([np.asarray(Image.open(data.items[index].path)) for index in range(len(data))])[:, None]
    np.testing.assert_allclose(rows_of(out, pixels), unit(space.embed(data).numpy()), atol=1e-5)


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
def test_the_exported_model_normalizes_if_the_run_uses_cosine(distance, tmp_path, capsys, monkeypatch):
    out = tmp_path / "model.onnx"
    code, printed, _ = run(capsys, monkeypatch, "export", feature_run(distance), "--out", out)
    assert code == 0
    assert "model.onnx: 0.0 MB, differs from the original by at most" in printed
    assert f"distance: {distance}" in printed
    space = Run.open(feature_run(distance))
    data = space.data("test")
    expected = space.embed(data).numpy()
    exported = rows_of(out, np.stack([data.items[index] for index in range(len(data))]))
    np.testing.assert_allclose(exported, unit(expected) if distance == "cosine" else expected, atol=1e-5)


def test_the_preparation_of_images_is_described_in_the_metadata(tmp_path, capsys, monkeypatch):
    code, printed, _ = run(capsys, monkeypatch, "export", image_run(), "--out", tmp_path / "model.onnx")
    assert code == 0
    assert "  transform: both sides to 28 pixels (bilinear), before the model\n" in printed
    assert "Warp(" not in printed


def test_every_transform_of_the_presets_has_a_description():
    for name, pipeline in PIPELINES.items():
        description = describe_transform(pipeline.test)
        pattern = r"(short side|both sides) to \d+ pixels \(bi\w+\)(, then the middle \d+ x \d+)?"
        assert re.fullmatch(pattern, description), name

    def mirrored(image, generator):
        return image

    assert describe_transform(mirrored) == "mirrored"
    assert describe_transform(Compose(())) == "nothing"


def test_a_run_in_half_precision_is_written_in_float32(tmp_path, capsys, monkeypatch):
    data = {"name": "folder", "root": str(glyph_files()), "validation": 0.0}
    training = {"steps": 2, "precision": "bfloat16"}
    recipe = {**SHORT, "data": data, "model": {"backbone": "conv4", "dim": 8}, "training": training}
    train(recipe, tmp_path / "run")
    code, _, errors = run(capsys, monkeypatch, "export", tmp_path / "run", "--out", tmp_path / "model.pt2")
    assert (code, errors) == (0, "")


def test_an_export_that_differs_ends_with_code_one_and_writes_nothing(tmp_path, capsys, monkeypatch):
    code, printed, errors = run(
        capsys, monkeypatch, "export", image_run(), "--out", tmp_path / "model.onnx", "--tolerance", "1e-12"
    )
    assert code == 1
    assert "error: the written model differs from the original" in errors
    assert "Traceback" not in errors
    assert printed == ""
    assert [*tmp_path.iterdir()] == []


def test_a_network_that_gives_other_embeddings_than_the_run_is_not_written(tmp_path, capsys, monkeypatch):
    """An export that leaves out the normalization of the pixels."""

    class Forgetful(DeployedModel):
        def __init__(self, embedder, normalize, unit):
            super().__init__(embedder, None, unit)

    monkeypatch.setattr("kinfold.models.export.DeployedModel", Forgetful)
    code, _, errors = run(capsys, monkeypatch, "export", image_run(), "--out", tmp_path / "model.pt2")
    assert code == 1
    assert "other embeddings than the run itself" in errors
    assert [*tmp_path.iterdir()] == []


def test_mistakes_end_with_code_two_and_a_hint(tmp_path, capsys, monkeypatch):
    for arguments, hint in [
        ([tmp_path, "--out", tmp_path / "m.onnx"], "is not the folder of a run"),
        ([image_run(), "--out", tmp_path / "m.pth"], "--out must end in .onnx or .pt2"),
        ([image_run(), "--out", tmp_path / "nowhere" / "m.onnx"], "there is no folder"),
        ([image_run(), "--out", tmp_path / "m.onnx", "--tolerance", "-1"], "tolerance must be above 0"),
    ]:
        code, printed, errors = run(capsys, monkeypatch, "export", *arguments)
        assert (code, printed) == (2, "")
        assert hint in errors
        assert "Traceback" not in errors


def test_help_has_an_example(capsys, monkeypatch):
    code, printed, _ = run(capsys, monkeypatch, "export", "--help")
    assert code == 0
    assert "kinfold export runs/birds --out birds.onnx" in printed


def test_missing_data_of_a_run_is_reported(tmp_path, capsys, monkeypatch):
    shutil.copytree(image_run(), tmp_path / "run")
    configuration = tmp_path / "run" / "configuration.toml"
    configuration.write_text(configuration.read_text().replace(str(glyph_files()), str(tmp_path / "gone")))
    code, _, errors = run(capsys, monkeypatch, "export", tmp_path / "run", "--out", tmp_path / "model.pt2")
    assert code == 2
    assert f"there is no folder {tmp_path / 'gone'}" in errors
