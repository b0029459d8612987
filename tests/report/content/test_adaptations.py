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
    assert shown["name"] == f"{adaptation.winner}, seed 0"
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


def write_audit(path, labels, marks):
    """An audit with a finding for each of the first rows: (kind, drop)"""
    lines = [f"{row},{drop},{kind},{labels[row]}" for row, (kind, drop) in enumerate(marks)]
    path.write_text("\n".join(["row,drop,kind,class", *lines]) + "\n")


KINDS = [("label-error", "yes"), ("label-error", "no"), ("duplicate", "yes")]
COUNTS = [{"kind": "label-error", "found": 2, "dropped": 1}, {"kind": "duplicate", "found": 1, "dropped": 1}]


def test_what_an_audit_found_is_counted_by_kind_and_what_it_marked_is_not_shown(features, tmp_path):
    with np.load(features) as file:
        labels, split = file["labels"], file["split"]
    data = {"name": "features", "root": str(features), "validation": 0.0}
    write_audit(tmp_path / "marks.csv", labels, KINDS)
    with open(tmp_path / "marks.csv", "a") as file:
        file.write(f"{len(labels) - 1},yes,duplicate,{labels[-1]}\n")
    kinfold.train({**RECIPE, "data": {**data, "drop": str(tmp_path / "marks.csv")}}, tmp_path / "run")
    content = collect_content(tmp_path / "run", points=20)
    (audit,) = content["audits"]
    assert (audit["file"], audit["methods"]) == ("marks.csv", [content["spaces"][0]["name"].partition(",")[0]])
    assert audit["rows"] == [COUNTS[0], {"kind": "duplicate", "found": 2, "dropped": 2}]
    assert content["spaces"][0]["count"] == (split == "test").sum() - 1
    (tmp_path / "marks.csv").unlink()
    with pytest.raises(ValueError, match=r"marks\.csv"):  # the data of the run cannot be read either
        kinfold.training.Run.open(tmp_path / "run").data("train")


@pytest.mark.parametrize("name", ["audit.csv", "photos.audit.csv", "run/audit.csv"])
def test_an_audit_beside_the_data_or_in_the_run_is_shown_without_being_named(features, tmp_path, name):
    with np.load(features) as file:
        labels = file["labels"]
    data = {"name": "features", "root": str(features), "validation": 0.0}
    kinfold.train({**RECIPE, "data": data}, tmp_path / "run")
    assert collect_content(tmp_path / "run", points=20)["audits"] == []
    write_audit(tmp_path / name, labels, KINDS)
    content = collect_content(tmp_path / "run", points=20)
    assert content["audits"] == [{"file": name.split("/")[-1], "methods": [], "rows": COUNTS}]
    write_audit(tmp_path / name, labels[::-1], KINDS)
    content = collect_content(tmp_path / "run", points=20)
    assert content["audits"] == []  # of other data
    assert not any("audit" in line for line in content["missing"])
