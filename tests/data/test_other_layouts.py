"""Published datasets in the other layouts that people have them in: the same items, classes and splits."""

import shutil

import numpy as np
import pytest

from kinfold.data import load
from tests.data.trees import cars_tree, cub_tree, picture, sop_tree


def devkit_tree(root):
    from scipy.io import savemat

    corners = ["bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2"]
    for part, numbers, name in (
        ("train", (1, 99), "cars_train_annos"),
        ("test", (98, 196), "cars_test_annos_withlabels"),
    ):
        rows = np.zeros((1, 2), dtype=[(field, object) for field in (*corners, "class", "fname")])
        for index, number in enumerate(numbers):
            picture(root / f"cars_{part}" / f"{index + 1:05d}.jpg", number)
            rows[0, index] = (3, 2, 8, 6, number, f"{index + 1:05d}.jpg")
        (root / "devkit").mkdir(exist_ok=True)
        savemat(root / "devkit" / f"{name}.mat", {"annotations": rows})
    names = np.array([f"Maker Model {number}" for number in range(1, 197)], dtype=object)[None]
    savemat(root / "devkit" / "cars_meta.mat", {"class_names": names})
    return root


def splits(dataset):
    """(class, split) of every item, in any order."""
    return sorted(
        (dataset.classes[label], str(part)) for label, part in zip(dataset.labels, dataset.split, strict=True)
    )


def test_cars_with_the_development_kit_are_those_with_one_list(tmp_path):
    pytest.importorskip("scipy")
    first = load("cars", cars_tree(tmp_path / "one"), check=False)
    second = load("cars", devkit_tree(tmp_path / "two"), check=False)
    assert splits(first) == splits(second)
    assert second.items[0].path.is_file()
    boxed = load("cars", tmp_path / "two", boxes=True, check=False)
    assert boxed.items[0].box == (2, 1, 8, 6)


def test_test_photos_without_labels_are_an_error_that_names_the_file(tmp_path):
    pytest.importorskip("scipy")
    devkit_tree(tmp_path)
    (tmp_path / "devkit" / "cars_test_annos_withlabels.mat").unlink()
    with pytest.raises(ValueError, match=r"put cars_test_annos_withlabels\.mat into"):
        load("cars", tmp_path, check=False)


@pytest.mark.parametrize("parts", [("",), ("train", "test")])
def test_cars_in_class_folders_take_the_alphabetical_order_as_the_official_one(parts, tmp_path):
    names = [f"Maker {number:03d}" for number in range(1, 196)] + ["smart fortwo Convertible 2012"]
    for number, name in enumerate(names, start=1):
        for part in parts:
            picture(tmp_path / part / name / "1.jpg", number)
    dataset = load("cars", tmp_path, check=False)
    assert len(dataset.classes) == 196
    assert dataset.classes[-1] == "smart fortwo Convertible 2012"
    trained = {
        dataset.classes[label] for label, part in zip(dataset.labels, dataset.split, strict=True) if part == "train"
    }
    assert trained == {*names[:98]}
    assert len(dataset) == 196 * len(parts)
    with pytest.raises(ValueError, match="class folders, which have no boxes"):
        load("cars", tmp_path, boxes=True, check=False)


def test_birds_need_only_their_class_folders(tmp_path):
    expected = load("cub", cub_tree(tmp_path / "one"), check=False)
    folder = tmp_path / "two"
    shutil.copytree(tmp_path / "one" / "CUB_200_2011" / "images", folder / "images")
    assert splits(load("cub", folder, check=False)) == splits(expected)
    (folder / "images" / "Auk").mkdir()
    picture(folder / "images" / "Auk" / "1.jpg", 0)
    with pytest.raises(ValueError, match=r"has no images\.txt, and .*Auk is not named as a class"):
        load("cub", folder, check=False)


def test_products_may_have_their_lists_and_images_in_folders(tmp_path):
    expected = load("sop", sop_tree(tmp_path / "one"), check=False)
    source, folder = tmp_path / "one" / "Stanford_Online_Products", tmp_path / "two"
    (folder / "Info_Files").mkdir(parents=True)
    for part in ("train", "test"):
        shutil.copy(source / f"Ebay_{part}.txt", folder / "Info_Files")
    for kind in source.glob("*_final"):
        shutil.copytree(kind, folder / "images" / kind.name)
    dataset = load("sop", folder, check=False)
    assert splits(dataset) == splits(expected)
    assert all(dataset.items[number].path.is_file() for number in range(len(dataset)))
