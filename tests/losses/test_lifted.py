"""Lifted structure as Oh Song defined it, where some positive pairs have no negatives."""

import torch

from kinfold.pairs import Relation
from tests.problems import batch, make


def test_positive_pairs_without_negatives_at_either_end_are_not_counted():
    x, _ = batch(41, sizes=(3, 3))
    labels = torch.tensor([0, 0, 1, 1, 2, 2])
    relation = Relation.from_labels(labels)
    negatives = relation.negatives.clone()
    negatives[:2] = negatives[:, :2] = False  # nobody is kept from the first two
    loss = make("lifted", variant="oh-song")
    rest = Relation.from_labels(labels[2:])
    expected = loss(x[2:], labels[2:], tuples=Relation(rest.positives, rest.negatives))
    torch.testing.assert_close(loss(x, labels, tuples=Relation(relation.positives, negatives)), expected)
    assert expected > 0
    # one end that has them is enough
    negatives[0, 4] = True
    assert loss(x, labels, tuples=Relation(relation.positives, negatives)) != expected
