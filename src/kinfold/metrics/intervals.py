"""How far a mean over queries could be from that of other queries, or of other classes, drawn alike."""

from typing import Literal

import torch
from torch import Tensor

_DRAWS = 2000
_DRAWS_AT_ONCE = 50


def bootstrap(
    per_query: dict[str, Tensor],
    query_class: Tensor,
    over: Literal["queries", "classes"],
    level: float = 0.95,
    seed: int = 0,
) -> dict[str, tuple[float, float]]:
    """Percentile intervals of the mean of each metric over 2,000 draws with replacement."""
    if over not in ("queries", "classes"):
        raise ValueError(f"intervals must be over 'queries' or 'classes', got {over!r}")
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must lie between 0 and 1, got {level}")
    found = {}
    for name, values in per_query.items():
        counted = ~values.isnan()
        sums, counts = values[counted], torch.ones_like(values[counted])
        if over == "classes":
            _, code = torch.unique(query_class[counted], return_inverse=True)
            size = int(code.max()) + 1 if code.shape[0] else 0
            sums = sums.new_zeros(size).index_add_(0, code, sums)
            counts = torch.bincount(code, minlength=size).double()
        found[name] = _interval(sums.cpu(), counts.cpu(), level, seed)
    return found


def _interval(sums: Tensor, counts: Tensor, level: float, seed: int) -> tuple[float, float]:
    """Of sum(sums) / sum(counts) where units are drawn with replacement."""
    units = sums.shape[0]
    if units == 0:
        return float("nan"), float("nan")
    generator = torch.Generator().manual_seed(seed)
    means = []
    for _ in range(0, _DRAWS, _DRAWS_AT_ONCE):
        drawn = torch.randint(units, (_DRAWS_AT_ONCE, units), generator=generator)
        means.append(sums[drawn].sum(dim=1) / counts[drawn].sum(dim=1))
    tail = (1.0 - level) / 2
    low, high = torch.cat(means).quantile(torch.tensor([tail, 1.0 - tail], dtype=sums.dtype)).tolist()
    return low, high
