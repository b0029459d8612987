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
    kin = [[j for j in items if j != i and y[i] == y[j]] for i in items]
    other = [[j for j in items if y[i] != y[j]] for i in items]
    reach = [distance[i][p] for i in items for p in kin[i]]
    if not reach:
        return [None for _ in items]
    least = min(max(reach), cutoff)
    found = []
    for i in items:
        if not kin[i] or not other[i]:
            found.append(None)
            continue
        nearest = min(max(distance[i][n], least) for n in other[i])
        found.append((set(kin[i]), next(n for n in other[i] if max(distance[i][n], least) == nearest)))
    return found


def drawn(x, y, times=60, **options):
    miner = kinfold.miners.create("drml-hard", generator=generator(0), **options)
    seen = [None] * len(y)
    for _ in range(times):
        found = miner(x, y)
        for a, p, n, valid in zip(found.anchor, found.positive, found.negative, found.valid, strict=True):
            if valid:
                positives, negative = seen[a] or (set(), int(n))
                assert negative == int(n)  # only the positive is drawn
                seen[a] = (positives | {int(p)}, negative)
    return seen


@pytest.mark.parametrize("cutoff", [0.0, 0.5, 0.9, 1.2, 3.0])
@pytest.mark.parametrize("seed", range(5))
def test_it_chooses_what_the_loop_chooses(cutoff, seed):
    x, y = batch(seed, dim=3)
    assert drawn(x, y, cutoff=cutoff) == by_loops(x, y, cutoff)


def test_the_default_cutoff_is_that_of_the_released_code():
    x, y = batch(9, dim=3)
    x = x + 4  # a narrow cone, in which much lies within the cutoff
    found = by_loops(x, y, 0.5)
    assert drawn(x, y) == found
    assert found != by_loops(x, y, 0.0)


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
    with pytest.raises(ValueError, match="distance from 0 up"):
        kinfold.miners.create("drml-hard", cutoff=-1.0)
