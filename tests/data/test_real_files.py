"""The readers on real files, where KINFOLD_TEST_DATA names a folder that has them."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from kinfold.data import Batches, ImageFiles, create_pipeline, decode, unpack
from kinfold.data.cub import cub
from kinfold.data.feature_file import features
from kinfold.data.image_table import table
from kinfold.data.omniglot import omniglot


def real(name: str) -> Path:
    folder = os.environ.get("KINFOLD_TEST_DATA")
    if not folder or not (Path(folder) / name).is_file():
        pytest.skip(f"KINFOLD_TEST_DATA names no folder with {name}")
    return Path(folder) / name


@pytest.fixture(scope="module")
def cub_photos(tmp_path_factory):
    return unpack(real("cub200_2011_s96.tar"), tmp_path_factory.mktemp("cub") / "CUB_200_2011" / "images")


@pytest.mark.slow  # 32,460 small files to write
def test_omniglot_is_complete(tmp_path):
    dataset = omniglot(unpack(real("omniglot_105.tar.gz"), tmp_path))
    assert (len(dataset.subset("train")), len(dataset.subset("test"))) == (19280, 13180)
    assert (len(dataset.subset("train").coarse_classes), len(dataset.subset("test").coarse_classes)) == (30, 20)
    assert set(dataset.class_sizes().tolist()) == {20}
    assert decode(dataset.items[0], mode="L").size == (105, 105)


def test_cub_in_its_official_layout_has_the_counts_of_the_papers(cub_photos):
    listed = table(real("cub200_2011_s96.labels.csv"), images=cub_photos, columns={"label": "class_id"})
    folder = cub_photos.parent
    assert isinstance(listed.items, ImageFiles)
    paths = listed.items.paths.tolist()
    numbers = [listed.classes[label] for label in listed.labels.tolist()]
    names = {number: path.split("/")[0] for number, path in zip(numbers, paths, strict=True)}
    lines = {
        "images.txt": [f"{row} {path}" for row, path in enumerate(paths, 1)],
        "image_class_labels.txt": [f"{row} {number}" for row, number in enumerate(numbers, 1)],
        "classes.txt": [f"{number} {name}" for number, name in names.items()],
    }
    for name, content in lines.items():
        (folder / name).write_text("\n".join(content) + "\n")
    dataset = cub(folder.parent)  # counts and files are checked
    assert dataset.split.tolist() == listed.split.tolist()
    assert dataset.classes[0] == "001.Black_footed_Albatross"
    assert len(dataset.subset("test").classes) == 100


def test_cub_photos_through_a_pipeline(cub_photos):
    listed = table(real("cub200_2011_s96.labels.csv"), images=cub_photos, columns={"label": "class_name"})
    test = listed.subset("test")
    chosen = create_pipeline("bn-inception")
    first = np.arange(len(test)) < 8
    batch = next(iter(Batches(test.where(first), chosen.test, chosen.normalize, batch_size=8, workers=2)))
    assert batch.images.shape == (8, 3, 227, 227)
    assert torch.isfinite(batch.images).all()
    assert -129 < batch.images.min() < batch.images.max() < 152


def test_cub_features_have_the_split_of_the_papers():
    dataset = features(real("cub200_2011_efflite0.npz"))
    assert (len(dataset.subset("train")), len(dataset.subset("test"))) == (5864, 5924)
    assert len(dataset.subset("test").classes) == 100
    assert dataset.items[0].shape == (1280,)
