"""Calibration: what is stated fits counts by loops, and a guarantee is refused where classes are too few."""

import itertools
import json
import math

import numpy as np
import pytest
import scipy.stats
import torch

from kinfold import Run
from kinfold.calibration import Calibration, calibrate, calibrate_run, identification, read_calibration
from kinfold.calibration.class_pairs import build_table
from kinfold.calibration.drawing import ClassItems
from kinfold.calibration.identification import estimate_thresholds, rate_at
from kinfold.calibration.probability import fit_probability, measure_reliability
from kinfold.calibration.thresholds import estimate_threshold, measure_coverage
from tests.cli.runs import feature_run
from tests.problems import generator


def draw(classes, items=5, seed=0, width=0.4):
    source = generator(seed)
    rows = torch.randn(classes, 10, generator=source).repeat_interleave(items, 0)
    rows = rows + width * torch.randn(classes * items, 10, generator=source)
    return rows, torch.arange(classes).repeat_interleave(items)


def unit_items(*arguments, **options):
    rows, labels = draw(*arguments, **options)
    return ClassItems.from_labels(torch.nn.functional.normalize(rows), labels)


def test_a_guarantee_is_given_down_to_one_in_the_pairs_of_classes_plus_one_and_refused_below():
    rows, labels = draw(40)
    result = calibrate(rows, labels, far=1 / 21)
    assert result.smallest_far == pytest.approx(1 / 21)
    assert result.kind == "guarantee"
    assert result.coverage is None
    result = calibrate(rows, labels, far=0.04)
    assert result.kind == "estimate"
    assert 0 <= result.coverage["exceeded"] <= 1
    assert "not a guarantee" in " ".join(result.describe())
    assert calibrate(rows, labels, far=0.2, may_guarantee=False).kind == "estimate"


def test_rates_at_the_threshold_equal_counts_by_loops():
    items = unit_items(20)
    result = calibrate(items.rows, items.labels, far=0.1)
    shares, positive = [], []
    for i, j in itertools.combinations(range(20), 2):
        shares.append(float((items.members(i) @ items.members(j).T >= result.threshold).double().mean()))
    for i in range(20):
        scores = (items.members(i) @ items.members(i).T)[torch.ones(5, 5).triu(1).bool()]
        positive.append(float((scores >= result.threshold).double().mean()))
    # the table of class pairs is interpolated between thresholds that are 13 % apart
    assert result.measured_far == pytest.approx(np.mean(shares), rel=0.15, abs=2e-3)
    assert result.tar == pytest.approx(np.mean(positive))
    assert result.far_interval[0] <= result.measured_far <= result.far_interval[1]
    assert result.accept([result.threshold, result.threshold - 1e-6]).tolist() == [True, False]


def test_the_table_of_class_pairs_equals_counts_by_loops():
    items = unit_items(6, items=4)
    table = build_table(items.rows, items.labels, 0.1, generator(0))
    for level in range(0, len(table.thresholds), 9):
        for i, j in itertools.product(range(6), repeat=2):
            scores = items.members(i) @ items.members(j).T
            expected = 0.0 if i == j else float((scores >= table.thresholds[level]).double().mean())
            assert float(table.shares[level, i, j]) == pytest.approx(expected, abs=0.07)
    counts = torch.tensor([[2.0], [0.0], [1.0], [1.0], [0.0], [2.0]])
    drawn = [0, 0, 2, 3, 5, 5]
    level = len(table.thresholds) // 3
    pairs = [float(table.shares[level, i, j]) for i, j in itertools.permutations(drawn, 2) if i != j]
    assert float(table.rates(counts)[level]) == pytest.approx(np.mean(pairs), rel=1e-5)


def test_thresholds_and_rates_of_a_table_are_inverse():
    items = unit_items(30)
    table = build_table(items.rows, items.labels, 0.05, generator(0))
    rates = table.rates(torch.ones(30, 1))
    threshold = table.find_threshold(rates, 0.05)
    assert float(table.rate_at(threshold, rates)) == pytest.approx(0.05, rel=1e-6)


def test_limits_of_rates_equal_a_jackknife_by_loops():
    items = unit_items(12, items=5)
    table = build_table(items.rows, items.labels, 0.1, generator(0))

    def log_rate(level, classes):
        return np.log(np.mean([float(table.shares[level, i, j]) for i, j in itertools.permutations(classes, 2)]))

    for level in (5, 20):
        everything = log_rate(level, range(12))
        left_out = [log_rate(level, [i for i in range(12) if i != gone]) for gone in range(12)]
        error = math.sqrt(11 / 12 * sum((value - np.mean(left_out)) ** 2 for value in left_out))
        for new, widening in ((None, 2.0), (6, 3.0), (10**9, 1.0)):
            expected = math.exp(everything + scipy.stats.t.ppf(0.9, 11) * error * math.sqrt(widening))
            assert float(table.limit_rates(0.9, new)[level]) == pytest.approx(expected, rel=1e-4)


def test_an_estimate_keeps_its_rate_among_new_classes_about_as_often_as_it_says():
    """The rate among as many new classes, in draws from one population; a naive threshold exceeds it in half."""
    exceeded = {"naive": 0, "estimate": 0}
    for draw in range(60):
        items, new = (ClassItems.from_labels(*draw_population(24, 2 * draw + part)) for part in range(2))
        table = build_table(items.rows, items.labels, 0.05, generator(draw))
        naive = float(table.find_threshold(table.rates(torch.ones(24, 1)), 0.05))
        others = new.draw_negative(40_000, generator(draw))
        for name, threshold in (("naive", naive), ("estimate", estimate_threshold(table, 0.05, 0.9))):
            exceeded[name] += int((others >= threshold).double().mean() > 0.05)
    assert exceeded["naive"] > 20
    assert exceeded["estimate"] <= 12  # of 60; 6 are the aim, and 12 have a chance of 1 %


def test_coverage_counts_the_halves_on_which_the_rate_is_exceeded(monkeypatch):
    items = unit_items(16)
    table = build_table(items.rows, items.labels, 0.1, generator(0))
    thresholds = iter([-1.0, 2.0, -1.0, -1.0])
    monkeypatch.setattr("kinfold.calibration.thresholds.estimate_threshold", lambda *_: next(thresholds))
    coverage = measure_coverage(table, 0.1, 0.9, 4, generator(0))
    assert (coverage["splits"], coverage["exceeded"]) == (4, 0.75)
    assert 0.75 * 0.5 < coverage["mean_far"] < 0.75


def draw_population(classes, seed):
    """Unit rows of classes around centers of different spread, and labels."""
    source = generator(seed)
    centers = torch.randn(classes, 8, generator=source) + 0.6
    rows = centers[:, None] + 0.5 * torch.randn(classes, 5, 8, generator=source)
    return torch.nn.functional.normalize(rows.flatten(0, 1), dim=1), torch.arange(classes).repeat_interleave(5)


def test_the_curve_passes_through_the_chosen_point():
    rows, labels = draw_population(40, 0)
    result = calibrate(rows, labels, far=0.05)
    far, tar, at = (np.array(result.curve[name]) for name in ("far", "tar", "thresholds"))
    assert (np.diff(far) <= 0).all()
    assert (np.diff(tar) <= 0).all()
    assert np.interp(result.threshold, at, tar) == pytest.approx(result.tar, abs=0.02)
    assert np.interp(result.threshold, at, far) == pytest.approx(result.measured_far, rel=0.1)
    figure = result.plot()
    assert [axes.get_title() for axes in figure.axes][:2] == ["ROC", "DET"]
    points = [axes.lines[1].get_xydata()[0].tolist() for axes in figure.axes[:2]]
    assert points == [[result.measured_far, result.tar], [result.measured_far, 1 - result.tar]]
    assert [point.gallery_classes for point in result.identification] == [10, 100, 1000, 10000]
    assert "guarantee" in result._repr_html_()


def test_classes_are_matched_once_and_all_their_pairs_are_scored():
    items = unit_items(7, items=3)
    scores, units = items.match_classes(generator(1))
    assert torch.bincount(units).tolist() == [9, 9, 9]
    matrix = items.rows @ items.rows.T
    matched = set()
    for unit in range(3):
        values = scores[units == unit].float().sort().values
        (pair,) = [
            (i, j)
            for i, j in itertools.combinations(range(7), 2)
            if torch.allclose(matrix[3 * i : 3 * i + 3, 3 * j : 3 * j + 3].flatten().sort().values, values, atol=1e-6)
        ]
        matched |= {*pair}
    assert len(matched) == 6


def test_drawn_pairs_are_of_one_class_or_of_two_and_never_an_item_with_itself():
    items = ClassItems.from_labels(torch.eye(9), torch.tensor([0, 0, 1, 1, 1, 2, 3, 3, 3]))
    # orthogonal items: a similarity of one would be an item with itself
    assert items.draw_positive(500, generator(0)).max() == 0
    same = ClassItems.from_labels(torch.eye(4)[items.labels], items.labels)
    assert same.draw_positive(500, generator(0)).min() == 1
    assert same.draw_negative(500, generator(0)).max() == 0


def test_identification_rates_equal_enumeration_of_all_galleries():
    near = torch.tensor([[-torch.inf, 0.9, 0.2, 0.6], [0.3, -torch.inf, 0.7, 0.1]])
    weights = torch.tensor([0.5, 0.5], dtype=torch.float64)
    for size in (1, 2, 3):
        expected = []
        for probe in range(2):
            others = [value for value in near[probe].tolist() if value > -1]
            galleries = [*itertools.combinations(others, size)]
            expected.append(np.mean([max(gallery) >= 0.5 for gallery in galleries]))
        assert rate_at(near, weights, 0.5, size, 3) == pytest.approx(np.mean(expected))


def test_thresholds_of_identification_rise_with_the_gallery():
    points = estimate_thresholds(unit_items(30), 0.1, [2, 10, 29, 100], 3, generator(0))
    thresholds = [point.threshold for point in points]
    assert thresholds == sorted(thresholds)
    assert [point.extrapolated for point in points] == [False, False, False, True]


def test_of_many_classes_fewer_probes_are_scored(monkeypatch):
    monkeypatch.setattr(identification, "_MAX_PROBES", 40)
    items, shape = unit_items(30), []
    monkeypatch.setattr(identification, "rate_at", lambda near, *rest: shape.append(near.shape) or rate_at(near, *rest))
    estimate_thresholds(items, 0.1, [2], 1, generator(0))
    assert {*shape} == {(30, 30)}


def test_probabilities_never_fall_and_agree_with_a_known_truth():
    source = np.random.default_rng(0)
    positive = source.random(40_000) < 0.5
    scores = np.where(positive, source.normal(0.5, 0.2, 40_000), source.normal(0.0, 0.2, 40_000))
    fitted = fit_probability(torch.from_numpy(scores), torch.from_numpy(positive), torch.ones(40_000))
    grid = np.linspace(-0.2, 0.7, 19)
    truth = 1 / (1 + np.exp(-(grid - 0.25) * 0.5 / 0.04))
    assert np.abs(fitted(grid) - truth).max() < 0.06
    assert (np.diff(fitted(np.linspace(-1, 1, 300))) >= 0).all()
    # one in a hundred pairs is positive: odds fall by the factor 99
    assert fitted(0.25, prior=0.01) == pytest.approx(fitted(0.25) / (fitted(0.25) + 99 * (1 - fitted(0.25))))
    with pytest.raises(ValueError, match="prior"):
        fitted(0.2, prior=1.0)


def test_reliability_of_perfect_and_of_wrong_probabilities():
    predicted = np.repeat([0.05, 0.95], 100)
    right = np.concatenate([np.arange(100) < 5, np.arange(100) < 95]).astype(float)
    assert measure_reliability(predicted, right, np.ones(200)).error == pytest.approx(0)
    assert measure_reliability(predicted, 1 - right, np.ones(200)).error == pytest.approx(0.9)


def test_reliability_has_ten_bins_and_half_of_its_pairs_are_of_one_class():
    grid = (np.arange(200) + 0.5) / 200
    assert measure_reliability(grid, grid, np.ones(200)).predicted == pytest.approx(np.arange(10) / 10 + 0.05)
    measured = calibrate(*draw(20), far=0.1).reliability
    assert np.dot(measured.weight, measured.observed) == pytest.approx(0.5)


def test_the_interval_of_the_true_accept_rate_contains_it_and_lies_between_zero_and_one():
    result = calibrate(*draw(40), far=0.1)
    low, high = result.tar_interval
    assert 0 <= low < result.tar < high <= 1


def test_a_result_is_the_same_after_json_and_for_the_same_seed():
    rows, labels = draw(12)
    result = calibrate(rows, labels, far=0.2, seed=3)
    again = Calibration.from_dict(json.loads(json.dumps(result.to_dict())))
    assert again.to_dict() == result.to_dict() == calibrate(rows, labels, far=0.2, seed=3).to_dict()
    assert "guarantee" in repr(result)
    assert result.plot().axes


def test_wrong_input_is_refused():
    rows, labels = draw(12)
    for options, message in [
        ({"far": 0.0}, "far must be"),
        ({"confidence": 1.0}, "confidence must be"),
        ({"shots": 0}, "at least 1"),
    ]:
        with pytest.raises(ValueError, match=message):
            calibrate(rows, labels, **options)
    with pytest.raises(ValueError, match="too few"):
        calibrate(*draw(9))
    with pytest.raises(ValueError, match="60 embeddings and 50 labels"):
        calibrate(rows, labels[:50])
    with pytest.raises(ValueError, match="no class has two items"):
        calibrate(rows[::5], labels[::5])


def test_a_run_with_few_classes_and_training_classes_are_refused():
    run = Run.open(feature_run())
    assert read_calibration(run) is None
    with pytest.raises(ValueError, match="3 classes are too few"):
        calibrate_run(run)
    with pytest.raises(ValueError, match="training classes"):
        calibrate_run(run, split="train")
