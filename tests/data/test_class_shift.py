"""The ladder of class splits from near to far."""

import itertools

import numpy as np
import pytest

from kinfold.data import Rows, assign_shift, create_dataset, make_shifts
from kinfold.data.folds import assign_fold


def distance_of(means, mask):
    """Distance of two halves, in the unit of the ladder."""
    means = means - means.mean(axis=0)
    means = means / np.sqrt((means**2).sum(axis=1).mean())
    return np.linalg.norm(means[mask].mean(axis=0) - means[~mask].mean(axis=0))


def brute_force_distances(means):
    """Distances of all halves."""
    count = len(means)
    for chosen in itertools.combinations(range(count), count // 2):
        yield distance_of(means, np.isin(np.arange(count), chosen))


@pytest.mark.parametrize("seed", range(5))
def test_ends_are_close_to_the_nearest_and_the_farthest_halves(seed):
    means = np.random.default_rng(seed).normal(size=(10, 3))
    shifts = make_shifts(means)
    distances = sorted(brute_force_distances(means))
    assert shifts[-1].distance >= 0.95 * distances[-1]
    assert np.mean(np.array(distances) < shifts[0].distance - 1e-9) <= 0.15  # among the nearest
    assert all(shift.test_classes.sum() == 5 for shift in shifts)
    levels = [shift.distance for shift in shifts]
    assert levels == sorted(levels)


@pytest.mark.parametrize("seed", range(3))
def test_no_swap_of_two_classes_leads_beyond_the_ends(seed):
    means = np.random.default_rng(seed).normal(size=(12, 4))
    near, *_, far = make_shifts(means)
    for shift, sign in ((near, -1.0), (far, 1.0)):
        for i, j in itertools.product(np.flatnonzero(~shift.test_classes), np.flatnonzero(shift.test_classes)):
            swapped = shift.test_classes.copy()
            swapped[[i, j]] = swapped[[j, i]]
            assert sign * (distance_of(means, swapped) - shift.distance) < 1e-9


def test_distances_rise_in_equal_steps_with_many_classes():
    means = np.random.default_rng(0).normal(size=(120, 8))
    distances = np.array([shift.distance for shift in make_shifts(means)])
    steps = np.diff(distances)
    assert steps.min() > 0.7 * steps.max()


def test_two_clusters_are_mixed_first_and_separated_last():
    means = np.random.default_rng(1).normal(size=(20, 4)) + np.repeat([[0.0], [10.0]], 10, axis=0)
    near, *_, far = make_shifts(means)
    assert near.test_classes[:10].sum() == 5
    assert far.test_classes[:10].sum() in (0, 10)


def test_odd_numbers_of_classes_keep_their_halves():
    means = np.random.default_rng(2).normal(size=(11, 3))
    assert {int(shift.test_classes.sum()) for shift in make_shifts(means)} == {5}


def dataset(classes=12):
    draw = np.random.default_rng(3)
    labels = np.repeat(np.arange(classes), 4)
    rows = draw.normal(size=(classes, 6))[labels] * 3 + draw.normal(size=(len(labels), 6))
    return create_dataset("points", Rows(rows.astype(np.float32)), labels, np.full(len(labels), "train"))


def test_the_protocol_assigns_whole_classes_and_depends_on_directions_only():
    data = dataset()
    for level in range(5):
        split = assign_fold(data, f"shift-{level}").split
        by_class = split.reshape(12, 4)
        assert (by_class == by_class[:, :1]).all()
        assert (by_class[:, 0] == "test").sum() == 6
    longer = create_dataset("points", Rows(data.items.array() * 7), data.labels.numpy(), data.split)
    assert (assign_fold(longer, "shift-3").split == assign_fold(data, "shift-3").split).all()


def test_wrong_levels_means_and_images_are_refused():
    data = dataset()
    with pytest.raises(ValueError, match="levels of a ladder of 5 are 0 to 4"):
        assign_shift(data, 5)
    with pytest.raises(ValueError, match="rows for the 12 classes"):
        assign_shift(data, 0, np.zeros((3, 2)))
    with pytest.raises(ValueError, match="4 classes"):
        make_shifts(np.zeros((3, 2)))
    with pytest.raises(ValueError, match="shift-4"):
        assign_fold(data, "shift-5")
