"""Variance decompositions of constructed scores, beside loops that follow the definitions."""

from itertools import product

import numpy as np
import pytest
from benchmarks.variance import REST, compute_deviations, compute_sums_of_squares, decompose

FACTORS = ("backbone", "loss", "sampler", "seed")
SHAPE = (5, 4, 2, 3)


def _average(scores, fixed):
    """Mean over all cells whose indices agree with `fixed`, axis -> index."""
    cells = [
        scores[index]
        for index in product(*map(range, scores.shape))
        if all(index[axis] == level for axis, level in fixed.items())
    ]
    return sum(cells) / len(cells)


def _naive_sums(scores):
    grand, sums, rest = _average(scores, {}), {}, 0.0
    for index in product(*map(range, scores.shape)):
        left = scores[index] - grand
        single = {axis: _average(scores, {axis: index[axis]}) - grand for axis in range(scores.ndim)}
        for axis, effect in single.items():
            sums[FACTORS[axis]] = sums.get(FACTORS[axis], 0.0) + effect**2
            left -= effect
        for a in range(scores.ndim):
            for b in range(a + 1, scores.ndim):
                effect = _average(scores, {a: index[a], b: index[b]}) - grand - single[a] - single[b]
                name = f"{FACTORS[a]} x {FACTORS[b]}"
                sums[name] = sums.get(name, 0.0) + effect**2
                left -= effect
        rest += left**2
    return {**sums, REST: rest}


def test_sums_of_squares_are_those_of_plain_loops_and_add_up_to_the_total():
    scores = np.random.default_rng(0).normal(size=SHAPE)
    sums = compute_sums_of_squares(scores, FACTORS)
    assert sums == pytest.approx(_naive_sums(scores))
    assert sum(sums.values()) == pytest.approx(((scores - scores.mean()) ** 2).sum())


def test_each_effect_is_found_in_its_own_part():
    draw = np.random.default_rng(1)
    backbone, loss = draw.normal(size=(5, 1, 1, 1)), draw.normal(size=(1, 4, 1, 1))
    both = draw.normal(size=(5, 1, 2, 1))
    both = both - both.mean(axis=0, keepdims=True) - both.mean(axis=2, keepdims=True) + both.mean()
    parts = decompose(np.broadcast_to(3 * backbone + loss + both, SHAPE), FACTORS)
    shares = {name: part.share.mean for name, part in parts.items()}
    assert shares["backbone"] > shares["loss"] > 0.01
    assert shares["backbone"] + shares["loss"] + shares["backbone x sampler"] == pytest.approx(1)
    assert shares["seed"] == pytest.approx(0, abs=1e-12)
    assert sum(shares.values()) == pytest.approx(1)


def test_deviations_are_those_that_the_scores_were_drawn_with():
    draw = np.random.default_rng(2)
    shape, wanted = (40, 30, 20, 5), {"backbone": 2.0, "loss": 1.0, "sampler": 0.5, "seed": 0.0, REST: 0.3}
    scores = wanted[REST] * draw.normal(size=shape)
    for axis, name in enumerate(FACTORS):
        sizes = [1] * 4
        sizes[axis] = shape[axis]
        scores = scores + wanted[name] * draw.normal(size=sizes)
    measured = compute_deviations(scores, FACTORS)
    assert {name: round(value / max(wanted[name], 0.1)) for name, value in measured.items()} == {
        name: int(value > 0) for name, value in wanted.items()
    }
    assert measured[REST] == pytest.approx(0.3, rel=0.02)


def test_the_interval_of_a_share_is_the_jackknife_over_the_first_factor():
    scores = np.random.default_rng(3).normal(size=SHAPE) + np.arange(5.0).reshape(5, 1, 1, 1)
    whole = decompose(scores, FACTORS)["loss"].share
    shares = [decompose(np.delete(scores, level, 0), FACTORS)["loss"].share.mean for level in range(5)]
    spread = np.std(shares, ddof=0) * np.sqrt(4)  # of the jackknife: sqrt((n - 1) / n * sum of squares)
    assert whole.half_width == pytest.approx(2.7764451 * spread)
    assert whole.count == 5


def test_incomplete_tables_are_refused():
    scores = np.ones(SHAPE)
    scores[0, 0, 0, 0] = np.nan
    with pytest.raises(ValueError, match="every cell"):
        decompose(scores, FACTORS)
    with pytest.raises(ValueError, match="two levels or more"):
        decompose(np.ones((5, 1)), FACTORS[:2])
