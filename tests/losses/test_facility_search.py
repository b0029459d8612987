"""The search of the facility-location loss against all sets of facilities, and against scikit-learn's NMI."""

import itertools

import numpy as np
import pytest
import torch
from sklearn.metrics import normalized_mutual_info_score

from kinfold.losses.facility_location import FacilityLocation
from kinfold.losses.facility_search import Facilities, find_facilities
from kinfold.pairs import normalize
from tests.problems import batch


def problem(seed, sizes=(4, 3, 2), weight=2.0):
    x, y = batch(seed, dim=3, sizes=sizes)
    rows = normalize(x)
    distance = (rows[:, None] - rows[None]).norm(dim=2)
    codes = (y[:, None] == y).int().argmax(dim=1)
    return Facilities(distance, codes, weight)


def score(facilities, chosen):
    rows = facilities.distance[:, chosen]
    agreement = normalized_mutual_info_score(
        facilities.codes.numpy(), rows.argmin(dim=1).numpy(), average_method="geometric"
    )
    return float(-rows.min(dim=1).values.sum()) + facilities.weight * (1 - agreement)


@pytest.mark.parametrize("seed", range(5))
def test_agreement_is_that_of_scikit_learn(seed):
    facilities = problem(seed)
    for chosen in itertools.permutations(range(len(facilities.codes)), 3):
        clusters = facilities.distance[:, list(chosen)].argmin(dim=1).numpy()
        expected = normalized_mutual_info_score(facilities.codes.numpy(), clusters, average_method="geometric")
        assert abs(float(facilities.measure_agreement([*chosen])) - expected) < 1e-12


@pytest.mark.parametrize("weight", [0.5, 5.0, 50.0])
def test_search_comes_near_the_best_of_all_sets(weight):
    shares = []
    for seed in range(12):
        facilities = problem(seed, weight=weight)
        every = [score(facilities, [*chosen]) for chosen in itertools.combinations(range(len(facilities.codes)), 3)]
        chosen = facilities.choose_greedily(3)
        swapped = facilities.swap([*chosen], torch.eye(len(facilities.codes)) > 0, rounds=5)
        ranks = (max(every) - score(facilities, swapped)) / (max(every) - min(every))
        assert score(facilities, swapped) <= max(every) + 1e-9
        shares.append(ranks)
    assert np.mean(shares) < 0.1, "0 is the best of all sets and 1 the worst"


def test_swaps_change_what_the_greedy_search_chose():
    """Otherwise `rounds` would have no effect."""
    changed = 0
    for seed in range(12):
        x, y = batch(seed, dim=3, sizes=(4, 3, 2, 4))
        changed += FacilityLocation(rounds=0)(x, y).item() != FacilityLocation(rounds=5)(x, y).item()
    assert changed > 0


def test_classes_that_are_clusters_cost_nothing():
    centers = torch.eye(4).repeat_interleave(3, dim=0)
    x = centers + 1e-3 * torch.randn(12, 4, generator=torch.Generator().manual_seed(0))
    assert FacilityLocation(weight=0.1)(x, torch.arange(12) // 3).item() == 0


def test_items_without_a_class_are_left_out():
    distance = torch.tensor([[0.0, 1.0], [1.0, 0.0], [5.0, 5.0]])
    codes = torch.tensor([0, 1, -1])
    is_item = distance == 0
    chosen, agreement = find_facilities(distance, codes, is_item, 1.0, 5)
    assert chosen.tolist() == [True, True]
    assert float(agreement) == 1


def test_wrong_options():
    with pytest.raises(ValueError, match="weight must be a positive number"):
        FacilityLocation(weight=0)
    with pytest.raises(ValueError, match="rounds must be 0 or more"):
        FacilityLocation(rounds=-1)
