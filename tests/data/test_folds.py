"""The folds are those that were published, and in general what the rule says; classes never leak."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinfold.data import Rows, create_dataset
from kinfold.data.folds import FOLDS, assign_fold, count_folds, hold_out_classes
from kinfold.training import splits
from kinfold.training.config.settings import DataConfig

# (training classes, validation classes) of every fold, the second half being for testing
CUB = [
    ([*range(75)], [*range(75, 100)]),
    ([*range(25, 100)], [*range(25)]),
    ([*range(50, 100), *range(25)], [*range(25, 50)]),
    ([*range(75, 100), *range(50)], [*range(50, 75)]),
]
CARS = [
    ([*range(74)], [*range(74, 98)]),
    ([*range(24, 98)], [*range(24)]),
    ([*range(49, 98), *range(25)], [*range(25, 49)]),
    ([*range(73, 98), *range(49)], [*range(49, 73)]),
]


def numbered(classes, name="many", tested=None, per_class=1, role=None):
    """Items of classes 0..C-1, whose names sort like their numbers; the classes from `tested` on are for testing."""
    labels = np.tile(np.arange(classes), per_class)
    split = np.where(labels >= (classes if tested is None else tested), "test", "train")
    names = [f"{label:06}" for label in labels]
    return create_dataset(name, Rows(np.arange(len(labels), dtype=np.float32)[:, None]), names, split, role=role)


def classes(data, split):
    return sorted({int(data.classes[label]) for label in data.labels[data.split == split].tolist()})


@pytest.mark.parametrize(("name", "count", "expected"), [("cub", 200, CUB), ("cars", 196, CARS)])
@pytest.mark.parametrize("own_split", [True, False])
def test_the_folds_of_cub_and_cars_are_the_published_ones(name, count, expected, own_split):
    data = numbered(count, name, tested=count // 2 if own_split else None, per_class=2)
    for fold, (train, held) in enumerate(expected):
        assigned = assign_fold(data, "reality-check", fold)
        assert classes(assigned, "train") == sorted(train)
        assert classes(assigned, "validation") == held
        assert classes(assigned, "test") == [*range(count // 2, count)]


def test_products_are_halved_anew_and_folded_like_the_published_ones():
    data = numbered(22_634, "sop", tested=11_318)  # the dataset's own split: 11,318 and 11,316 classes
    for fold in range(4):
        assigned = assign_fold(data, "reality-check", fold)
        assert [len(classes(assigned, split)) for split in ("train", "validation", "test")] == [8488, 2829, 11_317]
    classic = assign_fold(data, "classic")
    assert (classic.split == data.split).all()


@given(st.integers(8, 300), st.booleans())
def test_folds_are_disjoint_by_class_and_of_the_sizes_of_the_rule(count, own_split):
    half = count // 2
    data = numbered(count, tested=half if own_split else None, per_class=2)
    validation_classes = []
    for fold in range(4):
        assigned = assign_fold(data, "reality-check", fold)
        parts = [classes(assigned, split) for split in ("train", "validation", "test")]
        assert sorted([*parts[0], *parts[1], *parts[2]]) == [*range(count)]
        assert parts[2] == [*range(half, count)]
        assert len(parts[1]) == (half // 4 if own_split else count // 8)
        validation_classes += parts[1]
    assert len({*validation_classes}) == len(validation_classes), "a class validates in two folds"


@given(st.integers(4, 200), st.integers(0, 3))
def test_a_fold_begins_at_its_quarter_with_the_training_classes(count, fold):
    start, held = fold * count // 4, 2 * count // 8
    around = [(start + offset) % count for offset in range(count)]
    assert hold_out_classes(np.arange(count), None, fold).tolist() == around[count - held :]


def test_a_test_split_of_the_data_is_kept():
    labels = np.arange(16)
    split = np.where(labels % 2 == 0, "test", "train")  # neither half
    data = create_dataset("own", Rows(np.zeros((16, 1))), [f"{label:02}" for label in labels], split)
    assert (assign_fold(data, "classic").split == split).all()
    for fold in range(4):
        assigned = assign_fold(data, "reality-check", fold)
        assert classes(assigned, "test") == [*range(0, 16, 2)]
        assert len(classes(assigned, "validation")) == 2


def test_classic_gives_the_first_half_to_training():
    assigned = assign_fold(numbered(7, per_class=3), "classic")
    assert (classes(assigned, "train"), classes(assigned, "test")) == ([0, 1, 2], [3, 4, 5, 6])


def test_given_changes_nothing():
    data = numbered(5, tested=2)
    assert assign_fold(data, "given") is data


def test_a_class_with_test_items_and_others_is_refused():
    data = create_dataset("mixed", Rows(np.zeros((4, 1))), ["a", "a", "b", "c"], ["train", "test", "test", "train"])
    for protocol in ("classic", "reality-check"):
        with pytest.raises(ValueError, match="the class 'a' has test items and others"):
            assign_fold(data, protocol)


def test_query_gallery_needs_both_roles_among_the_test_items():
    role = ["", "query", "gallery", "query"]
    labels, split = ["a", "b", "b", "c"], ["train", "test", "test", "test"]
    data = create_dataset("shop", Rows(np.zeros((4, 1))), labels, split, role=role)
    assert assign_fold(data, "query-gallery") is data
    for invalid_role in (None, ["", "query", "query", "query"], ["gallery", "query", "query", "query"]):
        other = create_dataset("shop", Rows(np.zeros((4, 1))), labels, split, role=invalid_role)
        with pytest.raises(ValueError, match="query-gallery needs test items with the roles query and gallery, which"):
            assign_fold(other, "query-gallery")


def test_roles_are_for_test_items_only():
    role = ["query", "gallery"] * 8
    assigned = assign_fold(numbered(16, role=role), "classic")
    assert {*assigned.role[assigned.split == "train"].tolist()} == {""}
    assert {*assigned.role[assigned.split == "test"].tolist()} == {"query", "gallery"}


@pytest.mark.parametrize("fold", range(4))
def test_labels_are_counted_from_zero_in_every_part(fold):
    settings = DataConfig(protocol="reality-check", fold=fold)
    parts_by_split = splits.split_classes(splits.assign_splits(numbered(16, per_class=2), settings), settings)
    for part, count in ((parts_by_split.train, 6), (parts_by_split.validation, 2), (parts_by_split.test, 8)):
        assert sorted({*part.labels.tolist()}) == [*range(count)]
        assert len(part.classes) == count


@pytest.mark.parametrize("fold", range(4))
def test_withheld_test_items_are_not_there_and_change_nothing_else(fold):
    data = numbered(16, per_class=2)
    open_, withheld = (
        splits.split_classes(splits.assign_splits(data, settings), settings)
        for settings in (
            DataConfig(protocol="reality-check", fold=fold, test=test_setting) for test_setting in ("open", "withheld")
        )
    )
    assert withheld.test is None
    for name in ("train", "validation"):
        assert (getattr(open_, name).items.array() == getattr(withheld, name).items.array()).all()
        assert getattr(open_, name).labels.equal(getattr(withheld, name).labels)
    assert len(splits.assign_splits(data, DataConfig(protocol="reality-check", fold=fold, test="withheld"))) == 16


def test_invalid_requests_are_errors():
    assert {name: count_folds(name) for name in FOLDS} == {
        "given": 1,
        "classic": 1,
        "query-gallery": 1,
        "reality-check": 4,
        **{f"shift-{level}": 1 for level in range(5)},
    }
    with pytest.raises(ValueError, match=r"unknown protocol 'reality-chek' .did you mean 'reality-check'\?"):
        count_folds("reality-chek")
    for fold in (-1, 4):
        with pytest.raises(ValueError, match=f"the folds of reality-check are 0 to 3, got {fold}"):
            assign_fold(numbered(16), "reality-check", fold)
    with pytest.raises(ValueError, match="at least 4 classes that are not for testing"):
        assign_fold(numbered(6), "reality-check")
    with pytest.raises(ValueError, match="two are needed"):
        assign_fold(numbered(1), "classic")
