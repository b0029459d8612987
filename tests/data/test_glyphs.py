"""The embedded dataset: what it holds is written down, and a font that changed is named."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import kinfold
from kinfold.data.glyphs import MANIFEST, SIZE, draw_character, glyphs, open_font

matplotlib = pytest.importorskip("matplotlib", reason="glyphs are drawn from matplotlib's fonts")
FONTS = Path(matplotlib.get_data_path()) / "fonts" / "ttf"


@pytest.fixture(scope="module")
def data():
    return glyphs()


def pixels(dataset):
    return np.stack([dataset.items[i] for i in range(len(dataset))])


def test_counts_are_those_of_the_manifest(data):
    manifest = json.loads(MANIFEST.read_text())
    assert len(manifest["faces"]) == 22
    assert len(data.classes) == len(manifest["classes"]) == 1935
    assert len(data) == sum(codes_by_font.count(".") * -1 + 22 for _, codes_by_font, _ in manifest["classes"]) == 23777
    sizes = np.bincount(data.labels.numpy())
    assert sizes.tolist() == [22 - codes_by_font.count(".") for _, codes_by_font, _ in manifest["classes"]]
    assert sizes.min() >= 8


def test_classes_of_train_and_test_are_disjoint_halves(data):
    train, test = data.subset("train"), data.subset("test")
    assert (len(train.classes), len(test.classes)) == (968, 967)
    assert not set(train.classes) & set(test.classes)
    assert len(train) + len(test) == len(data)


def test_no_character_is_in_two_classes():
    codes = [code for entry in json.loads(MANIFEST.read_text())["classes"] for code in entry[0]]
    assert len(codes) == len(set(codes))


def test_characters_that_look_alike_are_one_class(data):
    groups = [set(entry[0]) for entry in json.loads(MANIFEST.read_text())["classes"]]
    latin_greek_cyrillic = {ord("A"), 0x391, 0x410}
    assert any(latin_greek_cyrillic <= group for group in groups)
    assert "A" in data.classes


def test_pictures_are_ink_on_nothing_and_all_different(data):
    images = pixels(data)
    assert images.shape == (23777, SIZE, SIZE)
    assert images.dtype == np.uint8
    assert (images.reshape(len(images), -1).max(axis=1) > 100).all()
    # exact pixels depend on the version of the drawing library; that they differ hardly does
    assert len(np.unique(images.reshape(len(images), -1), axis=0)) > 0.99 * len(images)


def test_pixels_alone_find_the_character_in_half_of_the_cases(data):
    test = data.subset("test")
    scores = kinfold.metrics.evaluate(pixels(test).reshape(len(test), -1), test.labels, metrics=["recall@1"])
    assert 0.44 < scores["recall@1"] < 0.54


def test_a_letter_is_drawn_as_one(data):
    label = data.classes.index("o")
    letters = pixels(data)[data.labels.numpy() == label]
    center = letters[:, 13:17, 13:15].mean()
    assert len(letters) == 22
    assert letters[:, :9].max() == 0  # nothing above a small o
    assert center < letters[:, 10:21].mean()  # a ring is open in the middle


def test_it_is_drawn_the_same_twice(data):
    again = draw_character(open_font(FONTS / "DejaVuSans.ttf"), ord("k"))
    first = draw_character(open_font(FONTS / "DejaVuSans.ttf"), ord("k"))
    assert np.array_equal(again, first)
    assert torch.equal(glyphs().labels, data.labels)


def test_a_changed_font_is_named(tmp_path):
    for path in FONTS.glob("*.ttf"):
        shutil.copy(path, tmp_path)
    with open(tmp_path / "DejaVuSerif.ttf", "ab") as file:
        file.write(b"\0")
    with pytest.raises(ValueError, match=r"DejaVuSerif\.ttf is not the one"):
        glyphs(fonts=tmp_path)
    (tmp_path / "cmr10.ttf").unlink()
    (tmp_path / "DejaVuSerif.ttf").unlink()
    with pytest.raises(ValueError, match=r"DejaVuSerif\.ttf is missing"):
        glyphs(fonts=tmp_path)


def test_fewer_classes_are_spread_over_all_and_half_of_them_train(data):
    few = kinfold.data.load("glyphs", classes=41)
    train, test = few.subset("train"), few.subset("test")
    assert (len(train.classes), len(test.classes)) == (21, 20)
    positions = [data.classes.index(name) for name in few.classes]
    assert positions == sorted(positions)
    assert positions[0] < 60
    all_train = data.subset("train").classes
    numbers = [all_train.index(name) for name in train.classes]
    gaps = np.diff([*numbers, len(all_train)])  # 968 / 21 = 46.1
    assert {*gaps.tolist()} == {46, 47}
    rows = (data.labels == positions[5]).nonzero().squeeze(1)
    assert few.labels.unique().tolist() == [*range(41)]
    assert (pixels(few)[(few.labels == 5).numpy()] == pixels(data)[rows.numpy()]).all()
    for count in (1, 1936):
        with pytest.raises(ValueError, match=f"classes must be 2 to 1935, got {count}"):
            kinfold.data.load("glyphs", classes=count)
