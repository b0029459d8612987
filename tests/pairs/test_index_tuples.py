"""Index tensors of other libraries become triplets or pairs; anything else is refused with what was expected."""

import numpy as np
import pytest
import torch

from kinfold.pairs import Quadruplets, Relation, Triplets
from kinfold.pairs.index_tuples import read_tuples
from tests.problems import batch, make

X, Y = batch(61)
SHAPE, CPU = (4, 6), torch.device("cpu")
A, P, N = torch.tensor([0, 3, 3]), torch.tensor([5, 1, 1]), torch.tensor([2, 0, 4])


def test_three_tensors_are_triplets_of_any_integer_type():
    for tuples in ((A, P, N), [A, P, N], (A.int(), P.to(torch.uint8), N.short())):
        triplets = read_tuples(tuples, SHAPE, CPU)
        assert isinstance(triplets, Triplets)
        assert torch.equal(triplets.anchor, A)
        assert torch.equal(triplets.positive, P)
        assert torch.equal(triplets.negative, N)
        assert bool(triplets.valid.all())


def test_four_tensors_are_pairs_whose_sides_may_differ_in_length():
    relation = read_tuples((A[:2], P[:2], A, N), SHAPE, CPU)
    assert isinstance(relation, Relation)
    assert relation.positives.nonzero().tolist() == [[0, 5], [3, 1]]
    assert relation.negatives.nonzero().tolist() == [[0, 2], [3, 0], [3, 4]]


@pytest.mark.parametrize("count", [3, 4])
def test_empty_tensors_select_nothing_whatever_their_type(count):
    for empty in (torch.tensor([]), torch.zeros(0, dtype=torch.int64)):
        leaf = X.clone().requires_grad_()
        value = make("triplet")(leaf, Y, tuples=(empty,) * count)
        value.backward()
        assert value.item() == 0
        assert not leaf.grad.any()


def test_what_is_a_selection_already_stays_as_it_is():
    fourth = Quadruplets(A, P, N, N, torch.ones(3, dtype=torch.bool), torch.ones(3, dtype=torch.bool))
    mask = torch.ones(SHAPE, dtype=torch.bool)
    for selection in (fourth, Triplets.from_list([(0, 1, 2)]), Relation(mask, ~mask)):
        assert read_tuples(selection, SHAPE, CPU) is selection


@pytest.mark.parametrize(
    ("tuples", "message"),
    [
        ((A, P), "got 2 entries"),
        ((A, P, N, A, P), "got 5 entries"),
        ((), "got 0 entries"),
        (A, "got Tensor"),
        ({"a": A, "p": P, "n": N}, "got dict"),
        ("hard", "got str"),
        (([0], [1], [2]), "entry 0 must be a tensor"),
        ((A, P, np.array([2, 0, 4])), r"entry 2 must be a tensor of shape \(T,\), got ndarray"),
        ((A, P[:, None], N), r"entry 1 must be a tensor of shape \(T,\), got \(3, 1\)"),
        ((A, P, N.float()), "entry 2 must hold integers, got torch.float32"),
        ((A > 0, P, N), "entry 0 must hold integers, got torch.bool"),
        ((A, P, N[:2]), "3 of anchor, 3 of positive, 2 of negative"),
        ((A, P[:2], A, N), "3 of anchor1, 2 of positive"),
        ((A + 1, P, N), r"anchor runs from 1 to 4, but the batch has the rows 0\.\.3"),
        ((A, P - 2, N), r"positive runs from -1 to 3, but the reference set .* has the rows 0\.\.5"),
        ((A[:2], P[:2], A, N + 2), r"negative runs from 2 to 6"),
        ((A, P, A, N), "a positive pair is listed more than once"),
        ((A[:2], P[:2], A[[0, 0]], N[[0, 0]]), "a negative pair is listed more than once"),
        ((A[:2], P[:2], A[:2], P[:2]), "listed as positive and as negative"),
        (Triplets.from_list([(0, 1, 6)]), r"negative runs from 6 to 6"),
        (Relation.from_labels(torch.arange(4)), r"the mined relation has shape \(4, 4\), the pairs \(4, 6\)"),
    ],
)
def test_anything_else_is_refused(tuples, message):
    with pytest.raises(ValueError, match=message):
        read_tuples(tuples, SHAPE, CPU)


@pytest.mark.parametrize("name", ["triplet", "contrastive", "multi-similarity", "quadruplet"])
def test_every_loss_refuses_what_it_would_ignore(name):
    loss = make(name)
    for tuples in ((A, P), "hard", A, {"anchor": A}):
        with pytest.raises(ValueError, match="tuples must be what a miner of kinfold returns, or index tensors"):
            loss(X, Y, tuples=tuples)
        with pytest.raises(ValueError, match="tuples must be"):
            loss.pair_weights(X, Y, tuples=tuples)


def test_a_degree_has_the_shape_of_the_masks_and_is_for_pair_losses():
    mask = Y[:, None] == Y
    with pytest.raises(ValueError, match="degree must be a floating point tensor of shape"):
        Relation(mask, ~mask, mask)
    selection = Relation.from_matrix(mask.double())
    torch.testing.assert_close(make("binomial")(X, Y, tuples=selection), make("binomial")(X, relation=mask.double()))
    with pytest.raises(ValueError, match="needs a boolean relation"):
        make("nt-xent")(X, Y, tuples=selection)
