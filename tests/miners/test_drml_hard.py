"""The selector of DRML's released code against a loop over its definition."""

import pytest
import torch

import kinfold
from tests.problems import batch, generator


def by_loops(x, y, cutoff):
    """For every anchor its positives and its one negative; None where it has no triplet."""
    unit = torch.nn.functional.normalize(x)
    distance = [[float((a - b).norm()) for b in unit] for a in unit]
    items = range(len(y))
    positives = [[j for j in items if j != i and y[i] == y[j]] for i in items]
    negatives = [[j for j in items if y[i] != y[j]] for i in items]
    reach = [distance[i][p] for i in items for p in positives[i]]
    if not reach:
        return [None for _ in items]
    least = min(max(reach), cutoff)
    selected = []
    for i in items:
        if not positives[i] or not negatives[i]:
            selected.append(None)
            continue
        nearest = min(max(distance[i][n], least) for n in negatives[i])
        selected.append((set(positives[i]), next(n for n in negatives[i] if max(distance[i][n], least) == nearest)))
    return selected


def drawn(x, y, times=60, **options):
    miner = kinfold.miners.create("drml-hard", generator=generator(0), **options)
    outcomes = [None] * len(y)
    for _ in range(times):
        selected = miner(x, y)
        for a, p, n, valid in zip(selected.anchor, selected.positive, selected.negative, selected.valid, strict=True):
            if valid:
                positives, negative = outcomes[a] or (set(), int(n))
                assert negative == int(n)  # only the positive is drawn
                outcomes[a] = (positives | {int(p)}, negative)
    return outcomes


@pytest.mark.parametrize("cutoff", [0.0, 0.5, 0.9, 1.2, 3.0])
@pytest.mark.parametrize("seed", range(5))
def test_it_chooses_what_the_loop_chooses(cutoff, seed):
    x, y = batch(seed, dim=3)
    assert drawn(x, y, cutoff=cutoff) == by_loops(x, y, cutoff)


def test_the_default_cutoff_is_that_of_the_released_code():
    x, y = batch(9, dim=3)
    x = x + 4  # a narrow cone, in which much lies within the cutoff
    selected = by_loops(x, y, 0.5)
    assert drawn(x, y) == selected
    assert selected != by_loops(x, y, 0.0)


def test_negatives_within_the_cutoff_tie_and_the_first_is_taken():
    """The third item is nearest to the first, but the second is near enough."""
    angles = torch.tensor([0.0, 0.3, 0.1, 0.6])
    x, y = torch.stack([angles.cos(), angles.sin()], dim=1), torch.tensor([0, 1, 1, 0])
    assert kinfold.miners.create("drml-hard")(x, y).negative[0] == 1
    assert kinfold.miners.create("drml-hard", cutoff=0.0)(x, y).negative[0] == 2
    assert kinfold.miners.create("hard")(x, y).negative[0] == 2


def test_the_cutoff_is_no_larger_than_the_largest_positive_distance_of_the_batch():
    """With positives that coincide nothing ties, whatever the cutoff."""
    angles = torch.tensor([0.0, 0.3, 0.1, 0.0, 0.3, 0.1])
    x, y = torch.stack([angles.cos(), angles.sin()], dim=1), torch.tensor([0, 1, 2, 0, 1, 2])
    assert kinfold.miners.create("drml-hard")(x, y).negative[0] == 2


def test_it_says_what_it_does_not_take():
    with pytest.raises(ValueError, match="distance of at least 0"):
        kinfold.miners.create("drml-hard", cutoff=-1.0)
