"""Reports of adaptations, of runs after an audit, and of feature files with paths."""

import numpy as np
import pytest
from PIL import Image

import kinfold
from kinfold.report import collect_content
from kinfold.report.content.datasets import find_images
from tests.adaptation.problems import noisy_classes

RECIPE = {
    "model": {"dim": 4},
    "sampler": {"name": "spc", "batch_size": 16, "per_class": 4},
    "training": {"steps": 2},
    "evaluation": {"selection": "last", "diagnose": "never"},
}


@pytest.fixture
def features(tmp_path):
    """A feature file with paths, beside the folder of its images."""
    rows, labels = noisy_classes(classes=20)
    paths = [f"{label}/{number}.png" for number, label in enumerate(labels.tolist())]
    for path in paths:
        (tmp_path / "photos" / path).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), "red").save(tmp_path / "photos" / path)
    split = np.where(labels < 14, "train", "test")
    np.savez(tmp_path / "photos.npz", embeddings=rows, labels=labels, split=split, path=np.array(paths))
    return tmp_path / "photos.npz"


def test_an_adaptation_is_shown_with_its_ladder_and_verdict(features, tmp_path):
    adaptation = kinfold.adapt(features, folder=tmp_path / "adapted", minutes=0.001)
    content = collect_content(tmp_path / "adapted", points=20)
    (shown,) = content["adaptations"]
    assert shown["verdict"] == adaptation.verdict
    assert [shown["header"], *shown["rows"]] == adaptation.cells()
    assert shown["name"].endswith("not trained, seed 0")
    assert content["audits"] == []


def test_images_beside_a_feature_file_are_shown_without_being_named(features, tmp_path):
    data = {"name": "features", "root": str(features), "validation": 0.0}
    kinfold.train({**RECIPE, "data": data}, tmp_path / "run")
    assert find_images(features) == tmp_path / "photos"
    content = collect_content(tmp_path / "run", points=20)
    assert content["thumbnails"]["count"] > 0
    assert content["adaptations"] == []


def test_a_file_without_paths_or_images_has_no_folder_of_images(features, tmp_path):
    features.rename(tmp_path / "elsewhere.npz")
    assert find_images(tmp_path / "elsewhere.npz") is None
    np.savez(tmp_path / "plain.npz", embeddings=np.zeros((2, 2)), labels=np.arange(2))
    assert find_images(tmp_path / "plain.npz") is None
    assert find_images(tmp_path / "missing.npz") is None


def test_what_an_audit_found_is_counted_by_kind(features, tmp_path):
    with np.load(features) as file:
        labels = file["labels"]
    kinds = [("label-error", "yes"), ("label-error", "no"), ("duplicate", "yes")]
    lines = [f"{row},{drop},{kind},{labels[row]}" for row, (kind, drop) in enumerate(kinds)]
    (tmp_path / "audit.csv").write_text("\n".join(["row,drop,kind,class", *lines]) + "\n")
    data = {"name": "features", "root": str(features), "validation": 0.0, "drop": str(tmp_path / "audit.csv")}
    kinfold.train({**RECIPE, "data": data}, tmp_path / "run")
    (audit,) = collect_content(tmp_path / "run", points=20)["audits"]
    assert audit["file"] == "audit.csv"
    assert audit["rows"] == [
        {"kind": "label-error", "found": 2, "dropped": 1},
        {"kind": "duplicate", "found": 1, "dropped": 1},
    ]
    (tmp_path / "audit.csv").unlink()
    with pytest.raises(ValueError, match=r"audit\.csv"):  # the data of the run cannot be read either
        kinfold.training.Run.open(tmp_path / "run").data("train")
