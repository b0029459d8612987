"""A map between two models: exact for linear spaces, measured on unseen classes, refused for other models."""

import json

import pytest
import torch

from kinfold import Gallery, Run
from kinfold.gallery.upgrade import SpaceMap, fit_linear_map, fit_upgrade, measure_map
from kinfold.metrics import neighbors
from kinfold.training import train
from tests.cli.runs import SHORT, feature_file, feature_run, run
from tests.problems import generator


def test_a_rotation_is_recovered():
    old = torch.nn.functional.normalize(torch.randn(200, 6, generator=generator(0)))
    rotation, _ = torch.linalg.qr(torch.randn(6, 6, generator=generator(1)))
    fitted = SpaceMap(*fit_linear_map(old @ rotation, old), "new", "old", {})
    unseen = torch.nn.functional.normalize(torch.randn(20, 6, generator=generator(2)))
    assert torch.allclose(fitted(unseen @ rotation), unseen, atol=1e-3)


def test_recall_of_a_map_leaves_the_item_itself_out():
    rows, labels = torch.randn(30, 5, generator=generator(0)), torch.arange(30) // 3
    _, nearest = neighbors(rows, k=1)
    assert measure_map(rows, rows, labels) == pytest.approx(float((labels[nearest[:, 0]] == labels).double().mean()))


@pytest.fixture(scope="module")
def newer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("upgrade") / "run"
    data = {"name": "features", "root": str(feature_file()), "validation": 0.0}
    sampler = {"name": "spc", "batch_size": 12, "per_class": 4}
    train({"data": data, "seed": 7, "model": {"dim": 6}, **SHORT, "sampler": sampler}, folder)
    return folder


def test_an_old_gallery_is_searched_with_a_new_model(capsys, monkeypatch, tmp_path, newer):
    import numpy as np

    gallery, file = tmp_path / "g", tmp_path / "map.safetensors"
    assert run(capsys, monkeypatch, "gallery", "build", gallery, feature_file(), "--run", feature_run())[0] == 0
    with np.load(feature_file()) as arrays:
        np.save(tmp_path / "row.npy", arrays["embeddings"][0])
        label = str(arrays["labels"][0])
    query = [gallery, tmp_path / "row.npy", "--run", newer, "-k", 3, "--json"]
    code, _, errors = run(capsys, monkeypatch, "gallery", "search", *query)
    assert (code, "cannot be compared" in errors) == (2, True)
    code, out, _ = run(capsys, monkeypatch, "upgrade", feature_run(), newer, "--out", file, "--json")
    recall = json.loads(out)["recall@1"]
    assert code == 0
    assert set(recall) == {"old", "new", "mapped"}
    assert recall["mapped"] > 0.5
    code, out, _ = run(capsys, monkeypatch, "gallery", "search", *query, "--upgrade", file)
    assert (code, json.loads(out)["queries"][0][0]["label"]) == (0, label)
    code, _, errors = run(
        capsys,
        monkeypatch,
        "gallery",
        "search",
        gallery,
        tmp_path / "row.npy",
        "--run",
        feature_run(),
        "--upgrade",
        file,
    )
    assert (code, "maps from another run" in errors) == (2, True)


def test_a_map_is_the_same_after_saving(tmp_path, newer):
    fitted = fit_upgrade(Run.open(feature_run()), Run.open(newer))
    fitted.save(tmp_path / "map.safetensors")
    again = SpaceMap.load(tmp_path / "map.safetensors")
    assert torch.equal(again.matrix, fitted.matrix)
    assert (again.source, again.target, again.recall) == (fitted.source, fitted.target, fitted.recall)
    rows = torch.randn(3, 6, generator=generator(0))
    made = Gallery.create(tmp_path / "g", dim=4, fingerprint=fitted.target)
    made.add(again(rows), ["a", "b", "c"], fingerprint=again.target)
    assert len(made) == 3
    with pytest.raises(ValueError, match="cosine"):
        fit_upgrade(Run.open(feature_run("euclidean")), Run.open(newer))
