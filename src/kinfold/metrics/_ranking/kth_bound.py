"""Lower bounds of the k-th largest product of each query."""

import math

import torch
from torch import Tensor

from kinfold.metrics._ranking import tuning
from kinfold.metrics._ranking.row_sorting import select_kth_largest
from kinfold.metrics._ranking.scan import ProductChunk


class KthLowerBound:
    """Lower bounds of the k-th largest product of each row, k up to `depth`.

    The bound is the k-th largest of the maxima of groups so far. If k is a large part of all columns, groups are
    narrow and their maxima bound loosely. Then a sample of the products estimates the k-th, and counting makes a
    bound of it.
    """

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self._maxima: Tensor | None = None
        self._all_products: Tensor | None = None

    def update(self, chunk: ProductChunk) -> None:
        """Take another chunk into account."""
        if chunk.is_complete and chunk.width < tuning.MIN_ADJACENT_WIDTH and chunk.int8_scale is None:
            self._all_products = chunk.products
            return
        if chunk.is_complete:
            self._maxima = chunk.maxima
            return
        maxima = chunk.maxima if self._maxima is None else torch.cat([self._maxima, chunk.maxima], dim=1)
        self._maxima = maxima.topk(min(self.depth, maxima.shape[1]), dim=1).values

    def bound_kth(self, k: int, rows: Tensor | slice = slice(None)) -> Tensor:
        """Return products (B,) that at least k products of each row reach; -inf while there are fewer than k groups."""
        if self._all_products is not None:
            return bound_kth_by_sample(self._all_products[rows], k)
        assert self._maxima is not None
        return _select_kth(self._maxima[rows], k)


def bound_kth_by_sample(values: Tensor, k: int) -> Tensor:
    """Return numbers (B,) that at least k values of each row (B, C) reach, and seldom many more."""
    sample = values[:, :: tuning.SAMPLE_STRIDE].float()
    expected = k * sample.shape[1] / values.shape[1]
    rank = math.ceil(expected + tuning.SAMPLE_MARGIN * math.sqrt(expected))
    if rank > sample.shape[1]:
        return _select_kth(values.float(), k)
    bound = _select_kth(sample, rank)
    too_high = (_count_reaching(values, bound) < k).nonzero().squeeze(1)
    if too_high.shape[0]:
        bound[too_high] = _select_kth(values[too_high].float(), k)
    return bound


def _count_reaching(values: Tensor, bound: Tensor) -> Tensor:
    """Count the values of each row that are at least `bound` (B,)."""
    # sums of float32 flags are exact up to 2^24
    step = tuning.FLAG_ROWS
    flags = torch.empty(step, values.shape[1], dtype=torch.float32, device=values.device)
    counts = torch.empty(values.shape[0], dtype=torch.float32, device=values.device)
    for start in range(0, values.shape[0], step):
        part = values[start : start + step]
        reached = torch.ge(part, bound[start : start + step, None], out=flags[: part.shape[0]])
        torch.sum(reached, dim=1, out=counts[start : start + step])
    return counts


def _select_kth(values: Tensor, k: int) -> Tensor:
    if k > values.shape[1]:
        return values.new_full((values.shape[0],), -torch.inf)
    if k <= tuning.MAX_TOPK:
        return values.topk(k, dim=1, sorted=False).values.amin(dim=1)
    return select_kth_largest(values, k)
