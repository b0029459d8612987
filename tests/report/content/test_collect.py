"""The content of a report: plain values, nothing of the machine, every stage reported."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from kinfold.experiments.repeat import Repeat
from kinfold.report import collect_content
from kinfold.report.content.json_values import decode_array
from kinfold.tsne import has_tsne
from tests.report.runs import NAMES, find_remarks


def test_everything_is_plain_json(of_bench):
    assert json.loads(json.dumps(of_bench, allow_nan=False)) == of_bench


def test_every_stage_of_long_work_is_reported(bench, tmp_path):
    shutil.copytree(bench, tmp_path / "tiny", ignore=shutil.ignore_patterns("cache"))
    reported = []
    collect_content(tmp_path / "tiny", progress=lambda stage, share: reported.append((stage, share)))
    for stage in (
        *("triplet, seed 0: neighbors, curves and map", "contrastive, seed 0: neighbors, curves and map"),
        *("images of the report", "diagnostics of the training classes", "pair weights of the losses"),
    ):
        assert [share for name, share in reported if name == stage] == [0.0, 1.0], stage


def test_no_path_of_the_machine_is_shown(bench, of_bench, finished):
    for folder, content in ((bench, of_bench), (finished.folder, collect_content(finished.folder))):
        text = json.dumps(content)
        assert str(folder.parent) not in text
        assert "rows.npz" in text or "tiny.npz" in text  # by its last name
        assert "# shortened here to the last name: data.root" in content["tables"][0]["rows"][0]["configuration"]


def test_class_names_are_not_changed(finished):
    (space,) = collect_content(finished.folder)["spaces"]
    assert sorted(space["classes"]) == sorted(NAMES)
    assert space["thumbnails"] is None


def test_features_are_shown_by_labels(finished):
    content = collect_content(finished.folder)
    assert content["thumbnails"] is None
    assert find_remarks(content, "features, not images; labels are shown instead")


def test_features_are_shown_by_the_pictures_of_their_column_path(finished, tmp_path):
    shutil.copytree(finished.folder, tmp_path / "run", ignore=shutil.ignore_patterns("cache"))
    rows = Path(finished.config.data.root)
    with np.load(rows) as arrays:
        columns = dict(arrays)
    paths = np.array([f"{number}.png" for number in range(len(columns["labels"]))])
    (tmp_path / "photos").mkdir()
    for number, path in enumerate(paths):
        Image.new("RGB", (20, 20), (number, 0, 0)).save(tmp_path / "photos" / path)
    (tmp_path / "photos" / paths[0]).unlink()
    paths[1] = "../outside.png"
    Image.new("RGB", (20, 20)).save(tmp_path / "outside.png")
    config = tmp_path / "run" / "configuration.toml"
    config.write_text(config.read_text().replace(str(rows), str(tmp_path / "rows.npz")))
    np.savez(tmp_path / "rows.npz", **columns, path=paths)
    content = collect_content(tmp_path / "run", images=tmp_path / "photos")
    tests = int((columns["split"] == "test").sum())
    assert content["thumbnails"]["count"] == tests - 2
    assert find_remarks(content, "1 images lie outside")
    assert find_remarks(content, "1 images cannot be read")
    assert not find_remarks(content, "features, not images")
    texts = {entry["query"]["text"] for entry in content["spaces"][0]["worst"]}
    assert texts <= {*paths.tolist(), "#1"}
    np.savez(tmp_path / "rows.npz", **columns)
    with_labels = collect_content(tmp_path / "run", images=tmp_path / "photos")
    assert find_remarks(with_labels, "no map of")  # the file has no column path


def test_without_scikit_learn_only_the_map_is_missing(finished, monkeypatch):
    monkeypatch.setattr("kinfold.report.content.embedding_spaces.has_tsne", lambda: False)
    monkeypatch.setattr("kinfold.report.content.space_measurements.has_tsne", lambda: False)
    monkeypatch.setattr("kinfold.report.content.collect.has_tsne", lambda: False)
    content = collect_content(finished.folder, points=20)
    assert content["spaces"][0]["map"] is None
    assert len(decode_array(content["spaces"][0]["neighbors"])) == 20
    assert find_remarks(content, "t-SNE needs scikit-learn, which is not installed")
    monkeypatch.undo()
    assert has_tsne()
    assert collect_content(finished.folder, points=20)["spaces"][0]["map"] is not None  # as soon as it is there


def test_a_map_needs_two_points(finished):
    with pytest.raises(ValueError, match="at least 2 points"):
        collect_content(finished.folder, points=1)


def test_folds_are_shown_apart_and_side_by_side(folded):
    content = collect_content(folded)
    captions = [table["caption"] for table in content["tables"]]
    assert captions == [
        "tiny, reality-check: test classes",
        "tiny, reality-check: test classes, the models of all folds side by side",
    ]
    repeat = Repeat.open(folded / "runs" / "tiny" / "contrastive" / "seed-0")
    for table, result in zip(content["tables"], ("separated", "concatenated"), strict=True):
        assert table["rows"][0]["cells"]["map@r"]["mean"] == repeat.scores[result]["map@r"]
        assert len(table["rows"][0]["command"].splitlines()) == 4
    assert [space["name"] for space in content["spaces"]] == ["contrastive, seed 0, 4 folds side by side"]
    assert content["spaces"][0]["diagnostics"]["recall@1"] == pytest.approx(
        repeat.scores["concatenated"]["recall@1"], rel=1e-4
    )


def test_a_repeat_on_its_own_is_shown_like_a_run(folded):
    content = collect_content(folded / "runs" / "tiny" / "contrastive" / "seed-0")
    assert content["kind"] == "run"
    assert content["spaces"][0]["split"] == "test"
    assert len(content["tables"]) == 3  # and validation


def test_a_missing_fold_keeps_the_test_classes_held_out(folded, tmp_path):
    shutil.copytree(folded, tmp_path / "tiny", ignore=shutil.ignore_patterns("cache"))
    shutil.rmtree(tmp_path / "tiny" / "runs" / "tiny" / "contrastive" / "seed-0" / "fold-2")
    for folder in (tmp_path / "tiny", tmp_path / "tiny" / "runs" / "tiny" / "contrastive" / "seed-0"):
        content = collect_content(folder)
        assert [space["split"] for space in content["spaces"]] == ["validation"]
        assert content["tables"][0]["rows"][0]["cells"]["map@r"]["mean"] is None
        assert find_remarks(content, "the test classes stay held out")
