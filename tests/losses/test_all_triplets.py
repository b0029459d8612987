"""All triplets in closed form: few positives, many positives, ties."""

import pytest
import torch

from kinfold.losses.triplet import all_triplets
from kinfold.pairs import Relation
from tests.problems import generator


def listed(distance, relation, margin):
    """Every triplet, one by one."""
    total, active = torch.zeros(len(distance), dtype=distance.dtype), torch.zeros(len(distance), dtype=distance.dtype)
    for a in range(len(distance)):
        for p in relation.positives[a].nonzero().flatten():
            for n in relation.negatives[a].nonzero().flatten():
                hinge = distance[a, p] - distance[a, n] + margin
                if hinge > 0:
                    total[a] += hinge
                    active[a] += 1
    return total, active


@pytest.mark.parametrize("few", [0, 16, 1000])
@pytest.mark.parametrize("sizes", [(21, 1, 3), (2, 2, 2), (18, 19), (30,)])
def test_equals_the_list_of_triplets_by_passes_and_by_sorting(few, sizes, monkeypatch):
    monkeypatch.setattr("kinfold.losses.triplet._FEW", few)
    labels = torch.cat([torch.full((size,), label) for label, size in enumerate(sizes)])
    relation = Relation.from_labels(labels)
    for steps in (10**6, 8):  # the second has many ties
        raw = torch.rand(len(labels), len(labels), generator=generator(1), dtype=torch.float64)
        distance = ((raw * steps).round() / steps).requires_grad_()
        values, active = all_triplets(distance, relation.positives, relation.negatives, margin=0.25)
        expected, count = listed(distance, relation, 0.25)
        torch.testing.assert_close(values, expected, rtol=1e-12, atol=1e-12)
        assert torch.equal(active, count)
        if expected.requires_grad:
            actual = torch.autograd.grad(values.sum(), distance)[0]
            torch.testing.assert_close(actual, torch.autograd.grad(expected.sum(), distance)[0], rtol=0, atol=0)
