"""The theorems of the top-k precision loss (Lu et al., 2019), and the sets behind the closed form."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kinfold.losses.precision_at_k import precision_at_k

# sixteenths: ties occur often, and sums are exact
score = st.integers(-16, 16).map(lambda n: n / 16)


@st.composite
def query(draw):
    positives = draw(st.lists(score, min_size=1, max_size=7))
    negatives = draw(st.lists(score, min_size=1, max_size=9))
    k = draw(st.integers(1, len(positives) + len(negatives)))
    gamma = draw(st.integers(0, 16)) / 16
    return sorted(positives, reverse=True), sorted(negatives, reverse=True), k, gamma


def loss_of(positives, negatives, k, gamma):
    s = torch.tensor([positives + negatives], dtype=torch.float64, requires_grad=True)
    positives = torch.tensor([[True] * len(positives) + [False] * len(negatives)])
    value = precision_at_k(s, positives, ~positives, k=k, margin=gamma)
    return value.item(), torch.autograd.grad(value.sum(), s)[0].flatten().tolist()


def wrong_in_top_k(positives, negatives, k, *, negatives_first):
    """lPrec: negatives among the k best by plain similarity; ties go to one side."""
    ranked = sorted([(-s, negatives_first, 0) for s in positives] + [(-s, not negatives_first, 1) for s in negatives])
    return sum(is_negative for *_, is_negative in ranked[:k])


@pytest.mark.sampled(4)
@pytest.mark.parametrize("part", range(4))  # each draws its own examples
@settings(max_examples=1000, deadline=None)
@given(query())
def test_the_loss_bounds_the_avoidable_errors(part, problem):
    """T1 and T3: l >= gamma (lPrec - max(0, k - n+)), and l is never negative."""
    positives, negatives, k, gamma = problem
    value, _ = loss_of(positives, negatives, k, gamma)
    errors = wrong_in_top_k(positives, negatives, k, negatives_first=True)
    assert value >= -1e-12
    assert value >= gamma * (errors - max(0, k - len(positives))) - 1e-12


@pytest.mark.sampled(4)
@pytest.mark.parametrize("part", range(4))
@settings(max_examples=1000, deadline=None)
@given(query(), st.integers(1, 32))
def test_separation_by_the_margin_makes_it_zero(part, problem, gap):
    """T2 and T4: once the relevant positive clears the relevant negative by more than gamma, nothing is lost."""
    positives, negatives, k, gamma = problem
    worst_positive = positives[min(k, len(positives)) - 1]
    spare = max(0, k - len(positives))  # negatives that the top k must hold
    if spare < len(negatives):
        # push the negatives from the first avoidable one down, below the positive that matters
        limit = worst_positive - gamma - gap / 16
        negatives = negatives[:spare] + [min(s, limit) for s in negatives[spare:]]
    value, _ = loss_of(positives, negatives, k, gamma)
    assert abs(value) < 1e-12
    for negatives_first in (False, True):
        assert wrong_in_top_k(positives, negatives, k, negatives_first=negatives_first) == spare


@settings(max_examples=2000, deadline=None)
@given(query())
def test_the_gradient_moves_equally_many_of_each_side(problem):
    positives, negatives, k, gamma = problem
    _, slope = loss_of(positives, negatives, k, gamma)
    pulled, pushed = slope[: len(positives)], slope[len(positives) :]
    assert set(pulled) <= {0.0, -1.0}
    assert set(pushed) <= {0.0, 1.0}
    assert sum(pulled) + sum(pushed) == 0


def test_in_case_one_the_lowest_ranked_negatives_of_the_top_k_are_pushed():
    """Two positives, three places, all taken by negatives: one negative may stay, and it is the best one."""
    _, slope = loss_of([0.1, 0.0], [0.9, 0.8, 0.7, 0.6], k=3, gamma=0.0)
    assert slope == [-1, -1, 0, 1, 1, 0]


def test_the_margin_counts_in_the_value():
    value, _ = loss_of([0.5], [0.5], k=1, gamma=0.25)
    assert value == 0.25
