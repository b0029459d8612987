"""Selection keeps the best step and counts patience from it."""

import math

from kinfold.training.loop.selection import Selection, is_better


def test_patience_counts_from_the_best_step():
    selection = Selection("validation", "map@r", patience=2, min_steps=40)
    stops = []
    for step, value in zip(range(0, 80, 10), (0.5, 0.4, 0.4, 0.6, 0.5, 0.7, 0.5, 0.5), strict=True):
        selection.update(step, {"map@r": value})
        stops.append(selection.exhausted)
    assert stops == [False] * 7 + [
        True
    ]  # at 20 patience was exhausted, but the minimum number of steps was not reached


def test_a_smaller_value_is_better_for_metrics_that_are_minimized():
    assert is_better("eer", 0.1, 0.2)
    assert not is_better("map@r", 0.1, 0.2)
    selection = Selection("validation", "eer")
    assert [selection.update(step, {"eer": value}) for step, value in enumerate([0.3, 0.2, 0.2, math.nan])] == [
        True,
        True,
        False,
        False,
    ]
    assert (selection.best, selection.best_step, selection.stale) == (0.2, 1, 2)
