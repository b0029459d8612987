import numpy as np
import pytest
import torch

import kinfold.data
from kinfold import registry
from kinfold.data import Dataset, ImageFiles, Rows, create_dataset

from . import trees


def birds() -> Dataset:
    return create_dataset(
        "birds",
        Rows(np.arange(8.0).reshape(4, 2)),
        labels=["wren", "jay", "wren", "crow"],
        split=["train", "test", "train", "test"],
        coarse=["small", "large", "small", "large"],
        role=["", "query", "", "gallery"],
    )


def test_classes_are_sorted_and_labels_point_to_them():
    dataset = birds()
    assert dataset.classes == ("crow", "jay", "wren")
    assert [dataset.classes[label] for label in dataset.labels.tolist()] == ["wren", "jay", "wren", "crow"]
    assert dataset.class_sizes().tolist() == [1, 1, 2]


def test_integer_labels_are_sorted_as_numbers():
    assert create_dataset("n", Rows(np.zeros((3, 1))), [10, 9, -1], ["train"] * 3).classes == ("-1", "9", "10")


def test_a_subset_counts_its_classes_anew():
    train = birds().subset("train")
    assert (train.classes, train.labels.tolist()) == (("wren",), [0, 0])
    assert train.coarse_classes == ("small",)
    assert isinstance(train.items, Rows)
    assert train.items.array().tolist() == [[0, 1], [4, 5]]


def test_where_keeps_labels_so_that_query_and_gallery_agree():
    dataset = birds()
    query = dataset.where(dataset.role == "query")
    assert (query.classes, query.labels.tolist()) == (dataset.classes, [1])
    assert dataset.where(torch.tensor([False, True, False, False]), relabel=True).classes == ("jay",)


def test_invalid_masks_and_splits_are_explained():
    with pytest.raises(ValueError, match=r"boolean of shape \(4,\)"):
        birds().where(np.array([0, 1]))
    with pytest.raises(ValueError, match=r"unknown split 'tset' \(did you mean 'test'"):
        birds().subset("tset")
    with pytest.raises(ValueError, match="no item in the split 'validation'; it has train, test"):
        birds().subset("validation")


def test_invalid_parts_are_errors():
    rows = Rows(np.zeros((2, 1)))
    with pytest.raises(ValueError, match=r"labels must lie in 0..0"):
        Dataset("x", rows, torch.tensor([0, 1]), ("a",), np.array(["train", "train"]))
    with pytest.raises(ValueError, match=r"labels must be int64 of shape \(2,\)"):
        Dataset("x", rows, torch.tensor([0]), ("a",), np.array(["train", "train"]))
    with pytest.raises(ValueError, match=r"split must have shape \(2,\)"):
        create_dataset("x", rows, ["a", "b"], ["train"])
    with pytest.raises(ValueError, match="coarse and coarse_classes belong together"):
        Dataset("x", rows, torch.tensor([0, 0]), ("a",), np.array(["train"] * 2), coarse=torch.tensor([0, 0]))
    with pytest.raises(ValueError, match="the label 'c' is not among the 2 classes"):
        create_dataset("x", rows, ["a", "c"], ["train"] * 2, classes=["a", "b"])
    with pytest.raises(ValueError, match="there are no items"):
        create_dataset("x", Rows(np.zeros((0, 1))), [], [])
    with pytest.raises(ValueError, match=r"boxes must have shape \(1, 4\)"):
        ImageFiles("x", ["a"], boxes=np.zeros((2, 4)))
    with pytest.raises(ValueError, match="1 images but 2 row numbers"):
        ImageFiles("x", ["a"], rows=[1, 2])


@pytest.fixture
def registered(monkeypatch):
    targets = {"cub": "kinfold.data.cub:cub", "folder": "kinfold.data.image_folder:folder"}
    monkeypatch.setitem(registry.lookup._targets, "datasets", targets)


@pytest.mark.usefixtures("registered")
def test_load_reads_by_name_from_a_folder_or_below_the_usual_one(tmp_path, monkeypatch):
    trees.cub_tree(tmp_path / "cub")
    assert len(kinfold.data.load("cub", tmp_path / "cub", check=False)) == 6
    monkeypatch.setenv("KINFOLD_DATA", str(tmp_path))
    assert len(kinfold.data.load("cub", check=False, boxes=True)) == 6
    monkeypatch.delenv("KINFOLD_DATA")
    with pytest.raises(ValueError, match=r"where is 'cub'\? .*KINFOLD_DATA"):
        kinfold.data.load("cub")


@pytest.mark.usefixtures("registered")
def test_load_names_the_nearest_data_set_and_option(tmp_path):
    with pytest.raises(ValueError, match="did you mean 'cub'"):
        kinfold.data.load("cubs", tmp_path)
    with pytest.raises(ValueError, match=r"'cub' has no option 'box' \(did you mean 'boxes'"):
        kinfold.data.load("cub", tmp_path, box=True)


def test_the_text_of_a_data_set_is_short_however_many_classes_it_has():
    names = [f"class {number}" for number in range(5000)]
    dataset = create_dataset("many", Rows(np.zeros((5000, 2))), names, ["train"] * 4000 + ["test"] * 1000)
    assert repr(dataset) == (
        "<Dataset 'many': 5,000 items (4,000 train, 1,000 test), 5,000 classes ('class 0', 'class 1', 'class 10', ...)>"
    )
    assert "\x1b" not in repr(create_dataset("odd", Rows(np.zeros((1, 2))), ["\x1b[31m"], ["train"]))


def test_the_table_of_a_dataset_counts_items_and_classes_of_each_split():
    lines = [line.split() for line in birds().table().splitlines()]
    assert lines[0] == ["birds", "items", "classes", "smallest", "class", "largest", "class"]
    assert lines[1:] == [["train", "2", "1", "2", "2"], ["test", "2", "2", "1", "1"], ["all", "4", "3", "1", "2"]]
    many = create_dataset("many", Rows(np.zeros((5000, 2))), np.arange(5000) % 2, ["validation"] * 5000)
    assert [line.split()[:3] for line in many.table().splitlines()[1:]] == [
        ["validation", "5,000", "2"],
        ["all", "5,000", "2"],
    ]
    assert len({len(line) for line in many.table().splitlines()}) == 1


def test_notebooks_show_the_same_table_with_names_escaped():
    html = birds()._repr_html_()
    assert "<th>birds</th><th>items</th><th>classes</th>" in html
    assert "<tr><th>train</th><td>2</td><td>1</td><td>2</td><td>2</td></tr>" in html
    assert html.count("<tr>") == 4
    odd = create_dataset("<script>", Rows(np.zeros((1, 2))), ["a"], ["train"])
    assert "<script>" not in odd._repr_html_()
    assert "&lt;script&gt;" in odd._repr_html_()


def test_a_dataset_without_items_has_a_table_of_its_header():
    empty = birds().where(np.zeros(4, dtype=bool))
    assert empty.table().split()[:2] == ["birds", "items"]
    assert len(empty.table().splitlines()) == 1
