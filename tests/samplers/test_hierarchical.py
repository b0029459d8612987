"""Batches of few coarse classes: which classes and items they hold, and how often each comes."""

from collections import Counter

import pytest
import torch

import kinfold
from tests.samplers.problems import labels_of

LABELS = labels_of([5, 4, 6, 3, 5, 7, 2, 8])
COARSE = torch.tensor([0, 0, 0, 1, 1, 1, 2, 2])[LABELS]


def make(**options):
    options = {"batch_size": 8, "coarse_labels": COARSE, "batches": 30} | options
    return kinfold.samplers.create("hierarchical", LABELS, **options)


@pytest.mark.parametrize("number", [1, 2])
def test_a_batch_holds_classes_of_some_coarse_classes(number):
    tally = Counter()
    for batch in make(coarse_per_batch=number):
        coarse = Counter(COARSE[batch].tolist())
        assert set(coarse.values()) == {8 // number}
        tally.update(coarse.keys())
        sizes = sorted(Counter(LABELS[batch].tolist()).values())
        if number == 2:
            assert sizes == [2, 2, 2, 2]
        else:  # four groups of the two or three classes of a coarse class
            assert sizes == ([4, 4] if 2 in coarse else [2, 2, 4])
    assert max(tally.values()) - min(tally.values()) <= 1


def test_items_and_classes_take_turns():
    items = Counter(item for batch in make(batches=120) for item in batch)
    for label in range(8):
        counts = [items[item] for item in (label == LABELS).nonzero().flatten().tolist()]
        assert max(counts) - min(counts) <= 1
    for coarse in range(3):
        drawn = [item for batch in make(batches=120) for item in batch if COARSE[item] == coarse]
        tally = Counter(LABELS[drawn].tolist())
        assert max(tally.values()) - min(tally.values()) <= 2


def test_strings_and_one_coarse_class():
    names = [f"family {number}" for number in COARSE.tolist()]
    assert list(make(coarse_labels=names)) == list(make())
    for batch in kinfold.samplers.create("hierarchical", LABELS, batch_size=8):
        assert set(Counter(LABELS[batch].tolist()).values()) == {2}


def test_wrong_options():
    for options, message in [
        ({"coarse_per_batch": 4}, "3 coarse classes"),
        ({"batch_size": 6}, "multiple of 4"),
        ({"coarse_labels": COARSE[1:]}, "one of each"),
        ({"coarse_labels": torch.arange(len(LABELS))}, "every class belongs to one"),
        ({"coarse_labels": None, "coarse_per_batch": 2}, "coarse_labels"),
    ]:
        with pytest.raises(ValueError, match=message):
            make(**options)
