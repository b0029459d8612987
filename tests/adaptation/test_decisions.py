"""Splits of classes, the corrected test and the rule that takes a step."""

import numpy as np
import pytest

from kinfold.adaptation.class_splits import choose_rows, split_training_classes
from kinfold.adaptation.decisions import corrected_test, cross_fit, select_candidate


def draw_means(classes, width=6):
    return np.random.default_rng(5).normal(size=(classes, width))


@pytest.mark.parametrize("classes", [8, 9, 23])
def test_every_repeat_holds_out_every_class_once_and_no_fold_mixes_the_halves(classes):
    splits = split_training_classes(draw_means(classes), repeats=3, seed=1)
    members = [{label for split in splits if split.half == half for label in split.held_out} for half in (0, 1)]
    assert not members[0] & members[1]
    assert members[0] | members[1] == {*range(classes)}
    for repeat in range(3):
        held_out = [label for split in splits if split.repeat == repeat for label in split.held_out]
        assert sorted(held_out) == [*range(classes)]
    assert min(len(split.held_out) for split in splits) >= 2
    assert splits != split_training_classes(draw_means(classes), repeats=3, seed=2)


@pytest.mark.parametrize("width", [20, 200])
def test_every_other_fold_of_a_half_holds_out_neighbors(width):
    """Classes of four groups far from each other: a division into neighbors separates groups, a random one does not."""
    groups = np.arange(40) % 4
    means = 10.0 * np.random.default_rng(0).normal(size=(4, width))[groups] + draw_means(40, width)
    splits = split_training_classes(means, repeats=6, seed=0)
    for half in (0, 1):
        inside = {*groups[[label for split in splits[:4] if split.half == half for label in split.held_out]].tolist()}
        assert len(inside) == 2
    sizes = [len({*groups[[*split.held_out]].tolist()}) for split in splits]
    assert sizes == [1 if (split.repeat + split.half) % 2 == 0 else 2 for split in splits]


def test_neighbors_are_found_among_equal_and_among_few_means():
    for means in (np.zeros((9, 5)), draw_means(8, 1)):
        splits = split_training_classes(means, repeats=2, seed=0)
        assert sorted(label for split in splits[:4] for label in split.held_out) == [*range(len(means))]


def test_too_few_classes_are_refused_with_the_number_that_is_needed():
    with pytest.raises(ValueError, match="7 training classes are too few to hold some out: 8 are needed"):
        split_training_classes(draw_means(7), 1, 0)


def test_measured_rows_are_limited_by_leaving_whole_classes_out():
    labels = np.repeat(np.arange(20), 10)
    split = split_training_classes(draw_means(20), 1, 0)[0]
    fitted, measured = choose_rows(labels, split, 0, limit=25)
    assert {*labels[fitted].tolist()} == {*range(20)} - {*split.held_out}
    assert len(measured) == 20
    assert len({*labels[measured].tolist()} & {*split.held_out}) == 2
    assert len(choose_rows(labels, split, 0, limit=7)[1]) == 7
    assert len(choose_rows(labels, split, 0, limit=1000)[1]) == 10 * len(split.held_out)


def test_the_corrected_test_is_that_of_nadeau_and_bengio():
    differences = np.random.default_rng(0).normal(0.3, 1.0, size=12)
    share = 0.25
    error = np.sqrt((1 / 12 + share / (1 - share)) * differences.var(ddof=1))
    test = corrected_test(differences.tolist(), share)
    from scipy.stats import t

    assert test.difference == pytest.approx(differences.mean())
    assert test.p == pytest.approx(t.sf(differences.mean() / error, 11))
    assert test.half_width == pytest.approx(t.ppf(0.975, 11) * error)


def test_differences_without_spread_are_not_significant():
    assert corrected_test([0.0] * 8).p == 1.0
    assert corrected_test([0.2] * 8).p == 1.0
    with pytest.raises(ValueError, match="two splits"):
        corrected_test([1.0])


def test_a_candidate_is_scored_on_the_half_that_did_not_select_it():
    splits = split_training_classes(draw_means(8), 1, 0)
    scores = {
        "first": {split.number: 1.0 if split.half == 0 else 0.0 for split in splits},
        "second": {split.number: 1.0 if split.half == 1 else 0.0 for split in splits},
    }
    assert cross_fit([scores, scores], splits) == ["first", "second"]  # the best of each half fails on the other
    assert select_candidate(scores, [0, 1]) == "first"


def test_overlapping_splits_without_a_difference_are_significant_no_more_often_than_the_level():
    """Class effects are noise; held-out scores of overlapping splits share them, and share the training classes."""
    generator = np.random.default_rng(0)
    taken = naive = 0
    trials = 400
    for trial in range(trials):
        effects = generator.normal(size=40)  # of held-out classes
        splits = split_training_classes(draw_means(40), 3, trial)
        influence = generator.normal(size=40) * 0.5  # of training classes on the fitted space
        differences = [
            effects[[*split.held_out]].mean() + np.delete(influence, split.held_out).mean() for split in splits
        ]
        taken += corrected_test(differences).p < 0.05
        mean, error = np.mean(differences), np.std(differences, ddof=1) / np.sqrt(len(differences))
        naive += mean / error > 1.796
    assert taken / trials <= 0.07
    assert naive / trials > 0.15  # what the correction is for
