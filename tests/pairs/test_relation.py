"""Relations from labels, matrices and ids; labels of every type; tuples."""

import numpy as np
import pytest
import torch

from kinfold.pairs import Quadruplets, Relation, Triplets, make_pair_batch, reindex
from kinfold.pairs.labels import encode


def test_labels_make_positives_and_negatives_without_the_diagonal():
    relation = Relation.from_labels(torch.tensor([1, 1, 2]))
    assert relation.positives.tolist() == [[False, True, False], [True, False, False], [False, False, False]]
    assert relation.negatives.tolist() == [[False, False, True], [False, False, True], [True, True, False]]
    assert relation.has_both().tolist() == [True, True, False]


def test_a_reference_set_has_no_diagonal_but_ids_exclude():
    pairs = make_pair_batch(
        torch.eye(2),
        torch.tensor([1, 2]),
        ref_embeddings=torch.eye(2),
        ref_labels=torch.tensor([1, 1]),
        ids=torch.tensor([7, 8]),
        ref_ids=torch.tensor([9, 7]),
    )
    assert pairs.relation.positives.tolist() == [[True, False], [False, False]]
    assert pairs.relation.negatives.tolist() == [[False, False], [True, True]]


def test_equal_ids_within_a_batch_are_one_item():
    pairs = make_pair_batch(torch.eye(3), torch.tensor([0, 0, 1]), ids=torch.tensor([5, 5, 6]))
    assert not pairs.relation.positives.any()
    assert pairs.relation.negatives.tolist() == [[False, False, True], [False, False, True], [True, True, False]]


def test_a_real_matrix_stands_on_both_sides():
    relation = Relation.from_matrix(torch.tensor([[0.3, 1.0], [0.0, 0.5]]))
    assert relation.positives.tolist() == [[False, True], [False, False]]
    assert relation.negatives.tolist() == [[False, False], [True, False]]
    assert relation.degree is not None


def test_a_boolean_matrix_is_not_changed():
    matrix = torch.ones(2, 2, dtype=torch.bool)
    Relation.from_matrix(matrix)
    assert bool(matrix.all())


def test_masks_must_be_boolean_and_of_one_shape():
    mask = torch.zeros(2, 2, dtype=torch.bool)
    with pytest.raises(ValueError, match="boolean"):
        Relation(mask.int(), mask)
    with pytest.raises(ValueError, match="differ in shape"):
        Relation(mask, mask[:1])


def test_labels_of_every_type_are_encoded():
    big = 2**53
    for labels in (
        [big, big + 1, big],
        np.array(["a", "b", "a"]),
        ["a", "b", "a"],
        np.array(["a", "b", "a"], dtype=object),
    ):
        (code,) = encode(labels)
        assert code.dtype == torch.int64
        assert code[0] == code[2] != code[1]
    left, right = encode(["x", "y"], ["y", "z"])
    assert left[1] == right[0]
    assert len({*left.tolist(), *right.tolist()}) == 3


@pytest.mark.parametrize("bad", [[1.5, 2.0], torch.rand(3), np.array([1, "a", None], dtype=object)])
def test_labels_of_other_types_are_refused(bad):
    with pytest.raises(ValueError, match="integers or strings"):
        encode(bad)


def test_strings_against_integers_are_refused():
    with pytest.raises(ValueError, match="one type"):
        encode(["a", "b"], [1, 2])


def test_reindex_gives_codes_from_zero_and_their_names():
    codes, classes = reindex(torch.tensor([-3, 2**40, -3]))
    assert codes.tolist() == [0, 1, 0]
    assert classes == [-3, 2**40]


def test_tuples_are_checked():
    index, valid = torch.zeros(2, dtype=torch.int64), torch.ones(2, dtype=torch.bool)
    Quadruplets(index, index, index, index, valid, valid)
    for wrong_index in (index.int(), index[:1]):
        with pytest.raises(ValueError, match="positive must be an int64"):
            Triplets(index, wrong_index, index, valid)
    with pytest.raises(ValueError, match="valid must be a boolean"):
        Triplets(index, index, index, index)
    assert len(Triplets.from_list([]).valid) == 0


def test_one_and_the_same_item_is_no_pair_whatever_the_matrix_says():
    options = {"ref_embeddings": torch.eye(2), "ids": torch.tensor([7, 8]), "ref_ids": torch.tensor([7, 9])}
    for is_positive in (True, False):
        pairs = make_pair_batch(torch.eye(2), relation=torch.full((2, 2), is_positive), **options)
        assert not pairs.relation.positives[0, 0]
        assert not pairs.relation.negatives[0, 0]
        assert bool((pairs.relation.positives if is_positive else pairs.relation.negatives)[0, 1])
