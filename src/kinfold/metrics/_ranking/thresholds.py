"""Exact scores of relevant items on the scale of the products: the thresholds that products are compared with."""

import torch
from torch import Tensor

from kinfold.metrics._ranking import tuning
from kinfold.metrics._ranking.fast_products import FastProducts


def compute_thresholds(products: FastProducts, query_ids: Tensor, items: Tensor, classes: Tensor) -> Tensor:
    """Return the float64 thresholds of relevant items.

    Args:
        products: The scale of the thresholds.
        query_ids: (B,), queries of one class in sequence.
        items: Gallery indices, (B, R). Queries of one class have the same items, and one matrix product serves them
            all.
        classes: The class of each query, (B,).

    Returns:
        (B, R).
    """
    _, run_lengths = torch.unique_consecutive(classes, return_counts=True)
    entries = (items.shape[1] + int(run_lengths.max())) * products.query_gallery.gallery.shape[1]
    runs_per_step = max(1, tuning.THRESHOLD_ENTRIES // entries)
    parts, first = [], 0
    for lengths in torch.split(run_lengths, runs_per_step):
        rows = slice(first, first + int(lengths.sum()))
        parts.append(_compute_runs(products, query_ids[rows], items[rows], lengths))
        first = rows.stop
    return torch.cat(parts)


def _compute_runs(products: FastProducts, query_ids: Tensor, items: Tensor, lengths: Tensor) -> Tensor:
    """Return the thresholds of runs of queries with these lengths, padded to the longest run."""
    query_gallery, center = products.query_gallery, products.center
    first = lengths.cumsum(0) - lengths
    run = torch.arange(lengths.shape[0], device=query_ids.device).repeat_interleave(lengths)
    position = torch.arange(query_ids.shape[0], device=query_ids.device) - first[run]
    padded = query_ids.new_zeros(lengths.shape[0], int(lengths.max()))
    padded[run, position] = query_ids
    left, right = query_gallery.queries[padded].double(), query_gallery.gallery[items[first]].double()
    if center is None:
        return torch.bmm(left, right.transpose(1, 2))[run, position]
    left, right = left.sub_(center), right.sub_(center)
    squared = right.square().sum(dim=2).unsqueeze(1)
    return torch.baddbmm(squared, left, right.transpose(1, 2), beta=-1.0, alpha=2.0)[run, position]
