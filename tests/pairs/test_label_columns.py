"""Several labels in one text: levels of a tree and sets of tags."""

import pytest
import torch

import kinfold
from kinfold.pairs import read_levels, read_tags, tree_relation
from tests.problems import NUM_CLASSES, batch, make


def test_paths_become_levels_and_a_relation():
    column = ["a/x/1", "a/x/2", "a / x / 1", "a/y/1", "b/x/1"]
    relation = tree_relation(read_levels(column))
    # a label of the same name below another parent is another label
    expected = [[3, 2, 3, 1, 0], [2, 3, 2, 1, 0], [3, 2, 3, 1, 0], [1, 1, 1, 3, 0], [0, 0, 0, 0, 3]]
    torch.testing.assert_close(relation, torch.tensor(expected) / 3)
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    assert kinfold.losses.create("happier")(x, relation=relation).isfinite()
    assert read_levels(["a|b", "a|c"], separator="|").shape == (2, 2)


def test_wrong_paths():
    for column in (["a/b", "a"], ["a/b", "a/"], ["a/b", "/b"]):
        with pytest.raises(ValueError, match="item 1"):
            read_levels(column)
    with pytest.raises(ValueError, match="no paths"):
        read_levels([])


def test_tags_are_a_relation_of_items_and_of_classes():
    column = ["2;0", "1", "", "3 ; 5", "4;1;1", "0"]
    tags, names = read_tags(column)
    assert names == ["0", "1", "2", "3", "4", "5"]
    sets = [{tag.strip() for tag in text.split(";")} - {""} for text in column]
    assert [{names[c] for c in row.nonzero().flatten().tolist()} for row in tags] == sets
    x, _ = batch(3)
    x = x[:6]
    assert make("cosface")(x, relation=tags).isfinite()
    assert tags.shape[1] == NUM_CLASSES
    shared = tags.int() @ tags.int().T > 0
    assert shared.tolist() == [[bool(a & b) for b in sets] for a in sets]
    assert kinfold.losses.create("multi-similarity")(x, relation=shared).isfinite()
