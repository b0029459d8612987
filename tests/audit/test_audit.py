"""Audits find what was planted, report little else, and what they mark can be left out of training."""

import numpy as np
import pytest
import torch
from PIL import Image

from kinfold import data
from kinfold.audit import audit, check_labels
from kinfold.data.dropping import drop_items
from tests.cli.runs import run
from tests.problems import generator


def clusters(classes=20, items=15, dim=24, seed=0):
    source = np.random.default_rng(seed)
    labels = np.repeat(np.arange(classes), items)
    rows = source.normal(size=(classes, dim))[labels] + 0.5 * source.normal(size=(len(labels), dim))
    return rows.astype(np.float32), labels


def make(rows, labels, split=None):
    names = [f"c{label}" for label in labels]
    return data.create_dataset("rows", data.Rows(rows), names, split if split is not None else ["train"] * len(labels))


def rows_of(result, kind):
    return {finding.row for finding in result.findings if finding.kind == kind}


def test_wrong_labels_are_found_and_right_ones_are_not():
    rows, labels = clusters()
    assert not audit(make(rows, labels)).findings
    wrong = labels.copy()
    planted = np.random.default_rng(1).permutation(300)[:30]
    wrong[planted] = (labels[planted] + np.random.default_rng(2).integers(1, 20, 30)) % 20
    result = audit(make(rows, wrong))
    flagged = rows_of(result, "label-error")
    assert len(flagged & {*planted.tolist()}) >= 18
    assert len(flagged - {*planted.tolist()}) <= 1
    assert {*result.drops} == flagged
    first = next(finding for finding in result.findings if finding.row in planted)
    assert f"looks like c{labels[first.row]}" in first.reason


def test_an_item_is_judged_by_others_only():
    # every item is a class of its own direction; with itself among the fitted ones each label would look right
    rows, labels = clusters(classes=4, items=30, dim=40)
    wrong = labels.copy()
    wrong[0] = 1
    check = check_labels(torch.nn.functional.normalize(torch.from_numpy(rows)), torch.from_numpy(wrong), generator(0))
    assert bool(check.suspicious[0])
    assert int(check.suggested[0]) == 0
    assert (check.label_probability <= 1).all()


def test_single_items_of_a_class_are_not_judged():
    rows, labels = clusters()
    labels = labels.copy()
    labels[3] = 99
    assert 3 not in rows_of(audit(make(rows, labels)), "label-error")


def test_duplicates_are_told_by_class_and_split():
    rows, labels = clusters()
    split = np.where(labels < 10, "train", "test")
    copies = np.array([0, 20, 40, 160])  # rows 300 to 303
    near = rows[60] + 1e-3
    all_rows = np.concatenate([rows, rows[copies], near[None]])
    all_labels = np.concatenate([labels, labels[0:1], labels[20:21], [19], labels[160:161], labels[60:61]])
    all_split = np.concatenate([split, ["train", "test", "train", "train", "train"]])
    result = audit(make(all_rows, all_labels, all_split))
    assert rows_of(result, "duplicate") == {300, 304}
    assert rows_of(result, "duplicate-across-classes") == {40, 302}
    assert rows_of(result, "leakage") == {20, 303}  # the training copies: test items stay
    assert {300, 20, 303, 40, 302} <= {*result.drops}
    assert 304 not in result.drops  # near duplicates within a class and split stay


def test_images_are_checked_for_copies_transparency_size_and_damage(tmp_path):
    source = np.random.default_rng(0)
    for number in range(6):
        folder = tmp_path / f"class{number % 2}"
        folder.mkdir(exist_ok=True)
        pixels = Image.fromarray(source.integers(0, 255, (6, 6, 3), dtype=np.uint8)).resize((48, 48))
        pixels.save(folder / f"{number}.png")
    first = Image.open(tmp_path / "class0" / "0.png")
    first.save(tmp_path / "class0" / "copy.png")
    first.convert("RGB").resize((40, 40)).save(tmp_path / "class1" / "smaller.jpg", quality=90)
    Image.new("RGBA", (48, 48), (250, 10, 10, 100)).save(tmp_path / "class1" / "transparent.png")
    for name in ("class0", "class1"):
        Image.new("RGB", (48, 48), (10, 200, 10)).save(tmp_path / name / "green.png")
    Image.fromarray(source.integers(0, 255, (5, 5, 3), dtype=np.uint8)).save(tmp_path / "class1" / "tiny.png")
    (tmp_path / "class1" / "broken.png").write_bytes(b"no image")
    dataset = data.load("folder", tmp_path)
    names = {row: dataset.items[row].path.name for row in range(len(dataset))}
    result = audit(dataset)
    names_by_kind = {kind: {names[row] for row in rows_of(result, kind)} for kind in {f.kind for f in result.findings}}
    assert names_by_kind["duplicate"] == {"copy.png"}
    assert "smaller.jpg" in names_by_kind["duplicate-across-classes"]
    assert names_by_kind["broken"] == {"broken.png"}
    assert names_by_kind["tiny"] == {"tiny.png"}
    assert names_by_kind["transparent"] == {"transparent.png"}
    assert names_by_kind["blank"] == {"transparent.png", "green.png"}
    assert "green.png" not in names_by_kind["duplicate-across-classes"]
    assert result.features == "pixels"


def test_hard_and_confused_classes_come_first():
    rows, labels = clusters()
    rows[labels == 3] = rows[labels == 4] + 0.3 * np.random.default_rng(2).normal(size=(15, 24)).astype(np.float32)
    result = audit(make(rows, labels))
    assert {name for name, _ in result.hard_classes[:2]} == {"c3", "c4"}
    assert {*result.confused[0][:2]} == {"c3", "c4"}


def test_marked_items_are_left_out_of_training(capsys, monkeypatch, tmp_path):
    rows, labels = clusters(classes=8, items=10)
    copies = np.concatenate([rows, rows[:2]])
    np.savez(
        tmp_path / "rows.npz",
        embeddings=copies,
        labels=np.concatenate([labels, labels[:2]]),
        split=np.where(np.concatenate([labels, labels[:2]]) < 4, "train", "test"),
    )
    root = ["--root", tmp_path / "rows.npz"]
    code, out, _ = run(capsys, monkeypatch, "data", "audit", "features", *root, "--out", tmp_path / "audit.csv")
    assert (code, "duplicate: 2" in out, "2 items should be left out" in out) == (0, True, True)
    dataset = data.load("features", tmp_path / "rows.npz")
    assert len(drop_items(dataset, tmp_path / "audit.csv")) == 80
    short = ["--set", "training.steps=2", "--set", "sampler.batch_size=10", "--set", "data.validation=0.0"]
    short += ["--set", "evaluation.selection=last", "--set", "evaluation.patience=none"]
    options = [*root, "--drop", tmp_path / "audit.csv", "--out", tmp_path / "run", *short]
    code, out, errors = run(capsys, monkeypatch, "train", "features", *options)
    assert code == 0, errors
    from kinfold import Run

    assert sum(len(part) for part in Run.open(tmp_path / "run").splits().values()) == 80


def test_a_file_of_another_dataset_is_refused(tmp_path):
    rows, labels = clusters(classes=3, items=10)
    dataset = make(rows, labels)
    for text, message in [
        ("row,drop,class\n5,yes,c2\n", "another dataset"),
        ("row,drop,class\n500,yes,c2\n", "another dataset"),
        ("row,drop,class\n5,maybe,c0\n", "yes or no"),
        ("row,drop,class\nfive,yes,c0\n", "integers"),
        ("row,class\n5,c0\n", "no column 'drop'"),
        ("row,drop,class\n" + "".join(f"{i},yes,c{i // 10}\n" for i in range(30)), "leave no item"),
    ]:
        (tmp_path / "audit.csv").write_text(text)
        with pytest.raises(ValueError, match=message):
            drop_items(dataset, tmp_path / "audit.csv")


def test_wrong_features_are_refused():
    rows, labels = clusters()
    with pytest.raises(ValueError, match="must be of shape"):
        audit(make(rows, labels), features=rows[:5])
    with pytest.raises(ValueError, match="not both"):
        audit(make(rows, labels), run=object(), features=rows)
