"""How single values become a mean, and that the weights of a real-valued relation are part of it."""

import pytest
import torch

from kinfold.losses import Loss, Terms
from tests.problems import batch, generator, kind_of, make

X, Y = batch(51)
N = len(X)
DEGREE = torch.rand(N, N, generator=generator(1), dtype=torch.float64)
ON_PAIRS = ["contrastive", "margin", "binomial", "similarity-margin", "similarity-contrastive"]


class Plain(Loss):
    """A pair loss that makes its mean without a look at the weights."""

    kind = "pair"

    def terms(self, pairs):
        values = torch.where(pairs.positives, 1.0 - pairs.scores, torch.where(pairs.negatives, pairs.scores + 1.0, 0.0))
        return self.end(pairs, values)

    def end(self, pairs, values):
        return Terms.over(values, (pairs.positives | pairs.negatives).sum())


class Counting(Plain):
    def end(self, pairs, values):
        return pairs.per_pair(values, values > 0.9)


class ByHand(Plain):
    def end(self, pairs, values):
        mask = pairs.positives | pairs.negatives
        if pairs.weights is None:
            return Terms.over(values, mask.sum())
        values = values * pairs.weights
        return Terms(values, values.sum().reshape(1), (mask * pairs.weights).sum().reshape(1), weighted=True)


def by_loop(counts):
    """sum r l+ + (1 - r) l- over pairs, divided by the weights of the sides that count."""
    unit = X / X.norm(dim=1, keepdim=True)
    total = weight = 0.0
    for i in range(N):
        for j in range(N):
            if i == j:
                continue
            s, r = float(unit[i] @ unit[j]), float(DEGREE[i, j])
            for value, share in ((1.0 - s, r), (s + 1.0, 1.0 - r)):
                if value > 0.9 or not counts:
                    weight += share
                total += share * value
    return total / weight


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_terms_without_the_weights_of_a_real_valued_relation_are_refused(reduction):
    loss = Plain(reduction)
    assert loss(X, Y).isfinite().all()
    with pytest.raises(ValueError, match=r"Plain.terms ignores the weights .*per_pair"):
        loss(X, relation=DEGREE)


@pytest.mark.parametrize(("loss", "counts"), [(Counting(), True), (ByHand(), False)], ids=["per_pair", "by hand"])
def test_weights_enter_values_sums_and_counts(loss, counts):
    assert loss(X, relation=DEGREE).item() == pytest.approx(by_loop(counts), rel=1e-12)


@pytest.mark.parametrize("name", ON_PAIRS)
def test_a_relation_of_ones_and_zeros_in_real_numbers_is_the_boolean_one(name):
    assert kind_of(name) == "pair"
    matrix = Y[:, None] == Y
    for reduction in ("mean", "sum", "none"):
        loss = make(name, reduction=reduction).double()
        torch.testing.assert_close(loss(X, relation=matrix.double()), loss(X, relation=matrix), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ON_PAIRS)
def test_a_real_valued_relation_and_tuples_are_not_given_together(name):
    loss = make(name).double()
    with pytest.raises(ValueError, match="give one of them"):
        loss(X, relation=DEGREE, tuples=(torch.tensor([0]), torch.tensor([1]), torch.tensor([2])))
