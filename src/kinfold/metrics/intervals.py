"""Bootstrap intervals of a mean over queries, or over classes."""

from typing import Literal

import torch
from torch import Tensor

from kinfold.registry import check_choice

_DRAWS = 2000
_DRAWS_PER_STEP = 50


def bootstrap(
    per_query: dict[str, Tensor],
    query_class: Tensor,
    over: Literal["queries", "classes"],
    level: float = 0.95,
    seed: int = 0,
) -> dict[str, tuple[float, float]]:
    """Return percentile intervals of the mean of each metric over 2,000 draws with replacement.

    Args:
        per_query: Values of each query by metric, (Q,), NaN for queries that are left out.
        query_class: The class of each query, (Q,).
        over: What is drawn: single queries or whole classes.
        level: The share of draws within the interval, between 0 and 1.
        seed: The seed of the draws.

    Returns:
        (low, high) of each metric.
    """
    check_choice("intervals", over, ("queries", "classes"))
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must be between 0 and 1, got {level}")
    intervals = {}
    for name, values in per_query.items():
        counted = ~values.isnan()
        sums, counts = values[counted], torch.ones_like(values[counted])
        if over == "classes":
            _, code = torch.unique(query_class[counted], return_inverse=True)
            size = int(code.max()) + 1 if code.shape[0] else 0
            sums = sums.new_zeros(size).index_add_(0, code, sums)
            counts = torch.bincount(code, minlength=size).double()
        intervals[name] = _compute_interval(sums.cpu(), counts.cpu(), level, seed)
    return intervals


def _compute_interval(sums: Tensor, counts: Tensor, level: float, seed: int) -> tuple[float, float]:
    """Return the interval of sum(sums) / sum(counts) over units drawn with replacement."""
    units = sums.shape[0]
    if units == 0:
        return float("nan"), float("nan")
    generator = torch.Generator().manual_seed(seed)
    means = []
    for _ in range(0, _DRAWS, _DRAWS_PER_STEP):
        drawn = torch.randint(units, (_DRAWS_PER_STEP, units), generator=generator)
        means.append(sums[drawn].sum(dim=1) / counts[drawn].sum(dim=1))
    tail = (1.0 - level) / 2
    low, high = torch.cat(means).quantile(torch.tensor([tail, 1.0 - tail], dtype=sums.dtype)).tolist()
    return low, high
