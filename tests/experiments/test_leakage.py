"""Training items that are in the test split too are found, and a bench says so before it starts."""

import numpy as np
import pytest
from PIL import Image

from kinfold.audit import audit
from kinfold.cli.bench import _warn_of_leakage
from kinfold.data import ImageFiles, Rows, create_dataset
from kinfold.experiments import read_suite
from kinfold.experiments.leakage import describe_leakage, find_leakage
from kinfold.training.config.parsing import to_toml
from tests.cli.runs import run
from tests.experiments.tiny import tables


def make_rows():
    """60 rows of 24 features; rows 3 and 40 are the same, and rows 5 and 41 nearly."""
    source = np.random.default_rng(0)
    rows = source.normal(size=(60, 24)).astype(np.float32)
    rows[40] = rows[3]
    rows[41] = rows[5] * 2 + 0.01 * source.normal(size=24)
    labels = np.arange(60) // 5
    return rows, labels, np.where(labels < 6, "train", "test")


def test_equal_and_near_rows_of_two_splits_are_reported():
    rows, labels, split = make_rows()
    assert find_leakage(create_dataset("rows", Rows(rows), labels, split)) == [(3, 40, True), (5, 41, False)]
    few = create_dataset("rows", Rows(rows[:, :8]), labels, split)
    assert find_leakage(few) == [(3, 40, True)]  # directions of few numbers are often close
    one_split = create_dataset("rows", Rows(rows), labels, ["train"] * 60)
    assert find_leakage(one_split) == []
    assert describe_leakage(one_split) is None


def test_files_of_the_same_bytes_are_reported(tmp_path):
    source = np.random.default_rng(0)
    paths = [f"{i}.png" for i in range(8)]
    for path in paths:
        pixels = source.integers(0, 255, (9, 9), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / path)
    (tmp_path / "6.png").write_bytes((tmp_path / "1.png").read_bytes())
    dataset = create_dataset("files", ImageFiles(tmp_path, paths), np.arange(8) // 2, ["train"] * 4 + ["test"] * 4)
    assert find_leakage(dataset) == [(1, 6, True)]
    assert "1 training items are in the test split too (1 exactly; such as rows 1 and 6)" in describe_leakage(dataset)


def test_nearly_equal_images_are_reported(tmp_path):
    source = np.random.default_rng(1)
    for number in range(8):
        pixels = source.integers(0, 255, (6, 6), dtype=np.uint8)
        image = Image.fromarray(pixels if number else np.full_like(pixels, 90))
        image.resize((32, 32), Image.Resampling.BICUBIC).save(tmp_path / f"{number}.png")
    with Image.open(tmp_path / "2.png") as image:
        image.resize((64, 64)).save(tmp_path / "5.jpg", quality=90)
    Image.new("L", (32, 32), 90).save(tmp_path / "7.png")  # of one color, as number 0
    (tmp_path / "6.png").write_bytes(b"no image")
    paths = [f"{i}.png" if i != 5 else "5.jpg" for i in range(8)]
    dataset = create_dataset("files", ImageFiles(tmp_path, paths), np.arange(8) // 2, ["train"] * 4 + ["test"] * 4)
    near = [pair for pair in find_leakage(dataset) if not pair[2]]
    assert near == [(2, 5, False)]


def test_validation_items_may_not_be_in_the_test_split_either():
    rows, labels, split = make_rows()
    parts = ["validation" if row == 3 else name for row, name in enumerate(split)]
    assert find_leakage(create_dataset("rows", Rows(rows), labels, parts)) == [(3, 40, True), (5, 41, False)]


@pytest.mark.parametrize("protocol", ["classic", "reality-check"])
def test_a_bench_warns_of_splits_that_its_protocol_makes(capsys, protocol, tmp_path):
    rows, labels, _ = make_rows()
    np.savez(tmp_path / "rows.npz", embeddings=rows, labels=labels)  # no splits: classes are halved
    settings = tables(tmp_path)
    settings["protocol"] = protocol
    settings["data"][0]["data"]["root"] = str(tmp_path / "rows.npz")
    (tmp_path / "suite.toml").write_text(to_toml(settings))
    _warn_of_leakage(read_suite(tmp_path / "suite.toml"))
    errors = capsys.readouterr().err
    assert errors.count("2 training items are in the test split too") == 1
    drops = tmp_path / "drop.csv"
    audit(create_dataset("rows", Rows(rows), labels, ["train"] * 30 + ["test"] * 30)).to_csv(drops)
    settings["data"][0]["data"]["drop"] = str(drops)
    (tmp_path / "suite.toml").write_text(to_toml(settings))
    _warn_of_leakage(read_suite(tmp_path / "suite.toml"))
    assert "training items" not in capsys.readouterr().err


def test_a_bench_warns_before_it_starts(capsys, monkeypatch, tmp_path):
    rows, labels, split = make_rows()
    np.savez(tmp_path / "rows.npz", embeddings=rows, labels=labels, split=split)
    settings = tables(tmp_path)
    settings["data"][0]["data"]["root"] = str(tmp_path / "rows.npz")
    (tmp_path / "suite.toml").write_text(to_toml(settings))

    def start(*arguments, **options):
        raise ValueError("the bench has started")

    monkeypatch.setattr("kinfold.experiments.run_bench", start)
    code, _, errors = run(capsys, monkeypatch, "bench", tmp_path / "suite.toml", "--out", tmp_path / "bench")
    assert code == 2
    assert "2 training items are in the test split too (1 exactly; such as rows 3 and 40)" in errors
    assert errors.index("warning:") < errors.index("the bench has started")
