"""Fingerprints of datasets: the sampled form that runs store, and the full form that caches use."""

import os

import numpy as np
import pytest
from PIL import Image

from kinfold.data import Dataset, EncodedImages, ImageFiles, Rows, create_dataset, to_dataset
from kinfold.data.fingerprint import compute_fingerprint

FEATURES = np.random.default_rng(0).normal(size=(90, 5)).astype(np.float32)


def feature_dataset(features=FEATURES, shift=0, split="test", role=None) -> Dataset:
    labels = [f"class {(index + shift) % 6}" for index in range(len(features))]
    return create_dataset("features", Rows(features), labels, [split] * len(features), role=role)


def file_dataset(folder, boxes=None) -> Dataset:
    return create_dataset("b", ImageFiles(folder, ["x.jpg", "none.jpg"], boxes), ["wren", "crow"], ["train"] * 2)


def encoded_dataset(content=b"onetwo") -> Dataset:
    items = EncodedImages(np.frombuffer(content, dtype=np.uint8), [0, 3], [3, 6], "s", ["", ""])
    return create_dataset("c", items, ["wren", "crow"], ["train"] * 2)


def test_sampled_fingerprints_are_those_that_stored_runs_hold(tmp_path):
    rows = Rows(np.arange(20000, dtype=np.float32).reshape(5000, 4))
    dataset = create_dataset("a", rows, np.arange(5000) % 7, ["train"] * 4000 + ["test"] * 1000)
    assert compute_fingerprint(dataset) == "36f77da644e07d25b2c27b0353c211de"
    (tmp_path / "x.jpg").write_bytes(b"123")
    assert compute_fingerprint(file_dataset(tmp_path)) == "4fa2e564b26325ce3e77945e28109e5a"
    assert compute_fingerprint(encoded_dataset()) == "f2f9c21f1f6dd62f578f62045be8f9f8"


@pytest.mark.parametrize("full", [False, True])
def test_labels_and_items_decide_the_fingerprint(full):
    same = compute_fingerprint(feature_dataset(), full=full)
    assert compute_fingerprint(feature_dataset(FEATURES.copy()), full=full) == same
    assert compute_fingerprint(feature_dataset(FEATURES + 1e-3), full=full) != same
    assert compute_fingerprint(feature_dataset(shift=1), full=full) != same
    assert compute_fingerprint(encoded_dataset(), full=full) != compute_fingerprint(
        encoded_dataset(b"onetwi"), full=full
    )


def test_splits_decide_the_sampled_form_and_roles_the_full_form():
    roles = feature_dataset(role=["query"] * 40 + ["gallery"] * 50)
    assert compute_fingerprint(roles, full=True) != compute_fingerprint(feature_dataset(), full=True)
    training = feature_dataset(split="train")
    assert compute_fingerprint(training) != compute_fingerprint(feature_dataset())
    assert compute_fingerprint(training, full=True) == compute_fingerprint(feature_dataset(), full=True)


def test_the_full_form_notices_new_times_and_boxes_of_files(tmp_path):
    (tmp_path / "x.jpg").write_bytes(b"123")
    before = compute_fingerprint(file_dataset(tmp_path), full=True)
    assert compute_fingerprint(file_dataset(tmp_path), full=True) == before
    assert compute_fingerprint(file_dataset(tmp_path, np.array([[0, 0, 1, 1], [-1] * 4])), full=True) != before
    os.utime(tmp_path / "x.jpg", ns=(1, 1))
    assert compute_fingerprint(file_dataset(tmp_path), full=True) != before


def test_the_full_form_reads_lists_of_arrays_images_and_paths(tmp_path):
    wide, high = np.zeros((2, 3), dtype=np.uint8), np.zeros((3, 2), dtype=np.uint8)
    Image.fromarray(wide).save(tmp_path / "x.png")
    lists = [[wide, wide], [wide, high], [Image.fromarray(high), wide], [tmp_path / "x.png", wide]]
    prints = [compute_fingerprint(to_dataset(entry, features=False), full=True) for entry in lists]
    assert len(set(prints)) == 4
    assert prints[2] == compute_fingerprint(to_dataset([high, wide], features=False), full=True)
