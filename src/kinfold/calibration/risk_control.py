"""Thresholds with a guarantee: conformal risk control (Angelopoulos et al., ICLR 2024) over exchangeable units.

A unit u is a class, or a pair of classes. Its loss at a threshold t is the share of its scores that are accepted,
L_u(t) = share of scores >= t, which falls with t and is at most 1. For m units that are exchangeable with the next one,
the smallest t with

    (L_1(t) + ... + L_m(t) + 1) / (m + 1) <= rate

satisfies E[L_{m+1}(t)] <= rate, whatever the distribution. The 1 stands for the next unit, of which nothing is known.
Without a single accepted score the left side is 1 / (m + 1): no smaller rate can be certified.
"""

import math

import torch
from torch import Tensor

_ROUNDING = 1e-9  # of sums of shares


def smallest_certifiable_rate(units: int) -> float:
    """Return the smallest rate that a number of units can certify, 1 / (units + 1).

    Examples:
        >>> smallest_certifiable_rate(99)
        0.01
    """
    return 1.0 / (units + 1)


def control_rate(scores: Tensor, units: Tensor, rate: float) -> float:
    """Return the smallest threshold whose mean share of accepted scores, for a new unit, is at most `rate`.

    Args:
        scores: Scores that must not be accepted, (T,).
        units: The unit of each score, numbers from 0 without gaps, (T,).
        rate: The rate to certify, between 0 and 1.

    Returns:
        A threshold: scores of at least this value are accepted.

    Raises:
        ValueError: The rate is below what this number of units can certify.

    Examples:
        >>> control_rate(torch.tensor([0.9, 0.1, 0.5, 0.2]), torch.tensor([0, 0, 1, 2]), rate=0.4)
        0.5000000000000001
    """
    count = int(units.max()) + 1 if units.numel() else 0
    budget = rate * (count + 1) - 1.0
    if not 0.0 < rate <= 1.0:
        raise ValueError(f"the rate must be above 0 and at most 1, got {rate}")
    if budget < -_ROUNDING:
        raise ValueError(
            f"a rate of {rate:g} cannot be certified with {count} units: the smallest is "
            f"{smallest_certifiable_rate(count):.3g}"
        )
    sizes = torch.bincount(units, minlength=count).double()
    return find_threshold(scores, 1.0 / sizes[units], budget)


def find_threshold(scores: Tensor, weights: Tensor, budget: float) -> float:
    """Return the smallest threshold at which the weights of the accepted scores sum to at most `budget`.

    Args:
        scores: (T,).
        weights: Positive, (T,).
        budget: The largest sum.

    Returns:
        -1, which accepts every cosine, if the sum of all weights is not above the budget.
    """
    values, order = scores.double().sort(descending=True)
    accepted = weights.double()[order].cumsum(0)
    too_many = (accepted > budget + _ROUNDING).nonzero()
    if too_many.shape[0] == 0:
        return -1.0
    # equal scores are accepted together or not at all: the threshold lies just above the first that is too much
    return math.nextafter(float(values[int(too_many[0])]), math.inf)
