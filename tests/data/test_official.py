"""Readers of the official layouts, on small trees of them, whole and broken."""

import re

import pytest

from kinfold.data.cars import cars
from kinfold.data.cub import cub
from kinfold.data.imagenet import imagenet
from kinfold.data.images import decode
from kinfold.data.in_shop import in_shop
from kinfold.data.omniglot import omniglot
from kinfold.data.sop import sop

from . import trees

READERS = {
    "cub": (cub, trees.cub_tree),
    "cars": (cars, trees.cars_tree),
    "sop": (sop, trees.sop_tree),
    "in-shop": (in_shop, trees.in_shop_tree),
    "omniglot": (omniglot, trees.omniglot_tree),
    "imagenet": (imagenet, trees.imagenet_tree),
}
each_reader = pytest.mark.parametrize("name", READERS)


@each_reader
def test_a_missing_folder_is_explained_with_where_to_get_it_and_what_to_put_where(name, tmp_path):
    reader, _ = READERS[name]
    with pytest.raises(ValueError, match="there is no folder") as problem:
        reader(tmp_path / "nowhere")
    assert "https://" in str(problem.value)
    assert "unpack" in str(problem.value)


@each_reader
def test_an_empty_folder_names_what_it_lacks(name, tmp_path):
    reader, _ = READERS[name]
    with pytest.raises(ValueError, match=f"{name}: .* has no .*Get .* from https://"):
        reader(tmp_path)


@each_reader
def test_a_partial_copy_is_refused_with_expected_and_found_counts(name, tmp_path):
    reader, tree = READERS[name]
    with pytest.raises(ValueError, match=r"expected [\d,]+ images of [\d,]+ classes, found \d+ images of \d+ classes"):
        reader(tree(tmp_path))


@each_reader
def test_every_image_of_the_tree_can_be_decoded(name, tmp_path):
    reader, tree = READERS[name]
    dataset = reader(tree(tmp_path), check=False)
    assert dataset.name == name
    assert all(decode(dataset.items[index]).size == (12, 8) for index in range(len(dataset)))


@each_reader
def test_train_and_test_classes_are_disjoint(name, tmp_path):
    reader, tree = READERS[name]
    dataset = reader(tree(tmp_path), check=False)
    train, test = dataset.subset("train"), dataset.subset("test")
    assert not set(train.classes) & set(test.classes)
    assert sorted(set(train.labels.tolist())) == list(range(len(train.classes)))
    assert len(train) + len(test) == len(dataset)


def test_cub_splits_after_class_100(tmp_path):
    dataset = cub(trees.cub_tree(tmp_path), check=False)
    assert dataset.split.tolist() == ["train"] * 4 + ["test"] * 2
    assert dataset.classes[1] == "002.Auk"
    assert dataset.class_sizes().tolist() == [2, 0, 2, 2]
    assert dataset.subset("train").classes == ("001.Albatross", "100.Brown_Pelican")
    # the folder itself serves as well as the one around it
    assert len(cub(tmp_path / "CUB_200_2011", check=False)) == 6


def test_cub_boxes_crop_to_the_bird(tmp_path):
    dataset = cub(trees.cub_tree(tmp_path), boxes=True, check=False)
    assert dataset.items[0].box == (2, 1, 8, 6)
    assert decode(dataset.items[0]).size == (6, 5)


def test_cub_names_an_image_without_a_class(tmp_path):
    folder = trees.cub_tree(tmp_path) / "CUB_200_2011"
    trees.write_lines(folder / "image_class_labels.txt", "1 1")
    with pytest.raises(ValueError, match=r"bird_2.jpg \(image 2\) has no class"):
        cub(tmp_path, check=False)


def test_cub_names_a_line_that_is_cut_short(tmp_path):
    folder = trees.cub_tree(tmp_path) / "CUB_200_2011"
    with (folder / "images.txt").open("a") as file:
        file.write("7\n")
    with pytest.raises(ValueError, match=r"images.txt line 7 has 1 fields instead of 2"):
        cub(tmp_path, check=False)


def test_a_listed_image_that_is_not_there_is_named_with_its_row(tmp_path, monkeypatch):
    folder = trees.cub_tree(tmp_path) / "CUB_200_2011"
    monkeypatch.setattr("kinfold.data.cub.COUNTS", {"train": (4, 2), "test": (2, 1)})
    assert len(cub(tmp_path)) == 6
    (folder / "images" / "100.Brown_Pelican" / "bird_1.jpg").unlink()
    with pytest.raises(
        ValueError, match=r"1 of 6 listed images are not there; the first is images.txt row 3: .*bird_1"
    ):
        cub(tmp_path)


def test_the_number_of_classes_is_checked_as_well_as_that_of_images(tmp_path, monkeypatch):
    trees.cub_tree(tmp_path)
    monkeypatch.setattr("kinfold.data.cub.COUNTS", {"train": (4, 3), "test": (2, 1)})
    with pytest.raises(ValueError, match=r"train: expected 4 images of 3 classes, found 4 images of 2 classes\. check"):
        cub(tmp_path)


def test_cars_splits_after_class_98_and_ignores_the_classification_split(tmp_path):
    dataset = cars(trees.cars_tree(tmp_path), boxes=True, check=False)
    assert dataset.split.tolist() == ["train", "train", "test", "test"]
    assert dataset.subset("test").classes == ("099.Maker Model 99", "196.Maker Model 196")
    assert decode(dataset.items[0]).size == (6, 5)


def test_cars_annotations_that_are_no_matlab_file_are_refused(tmp_path):
    trees.cars_tree(tmp_path)
    (tmp_path / "cars_annos.mat").write_bytes(b"<html>404</html>" * 20)
    with pytest.raises(ValueError, match="not a readable MATLAB file"):
        cars(tmp_path)


def test_sop_has_super_categories_as_coarse_labels(tmp_path):
    dataset = sop(trees.sop_tree(tmp_path), check=False)
    assert dataset.coarse_classes == ("bicycle", "chair")
    assert dataset.coarse is not None
    assert dataset.coarse.tolist() == [0, 0, 1, 1]
    assert dataset.classes == ("1", "2", "11319")
    assert dataset.subset("test").coarse_classes == ("chair",)


def test_sop_names_a_field_that_is_no_number(tmp_path):
    folder = trees.sop_tree(tmp_path) / "Stanford_Online_Products"
    trees.write_lines(folder / "Ebay_test.txt", "image_id class_id super_class_id path", "x 1 1 a.JPG")
    with pytest.raises(ValueError, match=r"Ebay_test.txt has a field that should be a number.*'x'"):
        sop(tmp_path, check=False)


def test_in_shop_has_queries_and_a_gallery(tmp_path):
    dataset = in_shop(trees.in_shop_tree(tmp_path), boxes=True, check=False)
    assert dataset.role is not None
    assert dataset.role.tolist() == ["", "query", "gallery"]
    assert dataset.split.tolist() == ["train", "test", "test"]
    assert dataset.coarse_classes == ("MEN/Denim", "WOMEN/Dresses")
    assert decode(dataset.items[0]).size == (6, 5)
    test = dataset.subset("test")
    query, gallery = test.where(test.role == "query"), test.where(test.role == "gallery")
    assert query.labels.tolist() == gallery.labels.tolist() == [0]


def test_in_shop_names_an_unknown_status(tmp_path):
    trees.in_shop_tree(tmp_path)
    trees.write_lines(tmp_path / "Eval/list_eval_partition.txt", "1", "header", "img/a.jpg id_1 galery")
    with pytest.raises(ValueError, match=re.escape("status 'galery' (did you mean 'gallery'?")):
        in_shop(tmp_path, check=False)


def test_omniglot_has_alphabets_as_coarse_labels(tmp_path):
    dataset = omniglot(trees.omniglot_tree(tmp_path), check=False)
    assert dataset.coarse_classes == ("Angelic", "Futurama")
    assert dataset.subset("train").classes == ("Futurama/character01", "Futurama/character02")
    trees.picture(tmp_path / "images_background" / "stray.png")
    with pytest.raises(ValueError, match=r"images_background/stray.png does not lie in"):
        omniglot(tmp_path, check=False)


def test_imagenet_splits_its_classes_in_halves(tmp_path):
    root = trees.imagenet_tree(tmp_path)
    assert imagenet(root, check=False).subset("train").classes == ("n01440764", "n01443537")
    assert len(imagenet(root, images="val", check=False)) == 4
    trees.picture(root / "val" / "ILSVRC2012_val_00000002.JPEG")
    with pytest.raises(ValueError, match="does not lie in a folder of its class"):
        imagenet(root, images="val", check=False)
    with pytest.raises(ValueError, match="images must be 'train' or 'val'"):
        imagenet(root, images="test")


@pytest.mark.parametrize("name", ["cub", "in-shop"])
def test_a_missing_or_garbled_box_is_named(name, tmp_path):
    reader, tree = READERS[name]
    tree(tmp_path)
    listing = next(tmp_path.rglob("*bbox*.txt" if name == "in-shop" else "bounding_boxes.txt"))
    content = listing.read_text()
    listing.write_text("\n".join(content.splitlines()[:-1]))
    with pytest.raises(ValueError, match=f"{listing.name} has no box for"):
        reader(tmp_path, boxes=True, check=False)
    listing.write_text(content.rstrip()[:-1] + "x")
    with pytest.raises(ValueError, match=f"{listing.name} has a field that should be a number"):
        reader(tmp_path, boxes=True, check=False)
