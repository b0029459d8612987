"""How far the mean of a few differences can be trusted."""

import math

import torch
from scipy import stats


def interval(differences: list[float]) -> tuple[float, float]:
    """Mean and half width of the 95 % interval; one value alone has none (NaN)."""
    values = torch.tensor(differences, dtype=torch.float64)
    if len(values) < 2:
        return float(values.mean()), math.nan
    half = stats.t.ppf(0.975, len(values) - 1) * float(values.std()) / math.sqrt(len(values))
    return float(values.mean()), half
