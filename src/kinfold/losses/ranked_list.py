"""Ranked list loss: positives inside one radius, negatives outside a larger one (Wang et al., CVPR 2019)."""

import torch
from torch import Tensor, relu
from torch.nn.functional import threshold

from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.pairs.distances import Distance
from kinfold.pairs.masks import HUGE, gather_few, mask_out, mask_to_float
from kinfold.pairs.row_function import RowResult, compute_rows


def ranked_list(
    distance: Tensor,
    positives: Tensor,
    negatives: Tensor,
    *,
    margin: float = 0.4,
    boundary: float = 1.2,
    temperature: float = 10.0,
    balance: float = 0.5,
) -> Tensor:
    """Loss of every anchor.

    (1 - balance) mean over positives with d > boundary - margin of [d - (boundary - margin)]
    + balance sum_n w_n [boundary - d] / sum_n w_n over negatives with d < boundary, w = exp(temperature (boundary - d))

    Args:
        distance: Distances, (B, R).
        positives, negatives: Boolean masks, (B, R).
        margin: Gap between the radius of positives and that of negatives.
        boundary: Distance from which a negative costs nothing.
        temperature: How strongly near negatives are preferred.
        balance: Weight of the negative side, in [0, 1].

    Returns:
        (B,).

    Examples:
        >>> positives = torch.tensor([[True, True, False]])
        >>> ranked_list(torch.tensor([[1.0, 0.1, 1.0]]), positives, ~positives).round(decimals=4)
        tensor([0.2000])
    """
    positive_distance, exists = gather_few(distance, positives)
    outside = relu(positive_distance - (boundary - margin)) * mask_to_float(exists, distance)
    pull = outside.sum(dim=1) / outside.detach().sign().sum(dim=1).clamp(min=1)
    factor = max(temperature, 1 / HUGE**0.5)
    push = compute_rows(
        distance,
        lambda d: _push(_inside(d, negatives, boundary), factor),
        lambda d: _push_plain(_inside(d, negatives, boundary), factor),
    )
    return (1 - balance) * pull + balance * relu(push)


def _inside(distance: Tensor, negatives: Tensor, boundary: float) -> Tensor:
    """How far negatives are inside the boundary; -HUGE for all others, whose weights are zero, unless there are no
    negatives inside."""
    return threshold(mask_out(boundary - distance, negatives), 0.0, -HUGE)


def _push_plain(inside: Tensor, temperature: float) -> Tensor:
    """sum_n w_n inside_n with w = softmax(temperature inside), (B,)."""
    push: Tensor = torch.linalg.vecdot(torch.softmax(temperature * inside, dim=1), inside)
    return push


def _push(inside: Tensor, temperature: float) -> RowResult:
    """The same, and its derivatives by the distances: -w_n (1 + temperature (inside_n - sum_n w_n inside_n))."""
    share = torch.softmax(temperature * inside, dim=1)
    push = torch.linalg.vecdot(share, inside)
    slopes = inside.sub_(push[:, None]).mul_(-temperature).sub_(1.0).mul_(share)
    return RowResult(push, slopes)


class RankedList(Loss):
    """Mean over anchors, on Euclidean distances of unit vectors.

    The weights of the negatives are differentiated too. The defaults are the paper's for Stanford Online Products.

    Args:
        margin: Gap between the radius of positives and that of negatives.
        boundary: Distance from which a negative costs nothing.
        temperature: How strongly near negatives are preferred; 0 weights all violated ones equally.
        balance: Weight of the negative side, in [0, 1].
        distance: How pairs are measured; None as the paper does. See `kinfold.pairs.distances`.
        reduction: "mean", "sum" or "none".
    """

    measure = "euclidean"

    def __init__(
        self,
        margin: float = 0.4,
        boundary: float = 1.2,
        temperature: float = 10.0,
        balance: float = 0.5,
        distance: Distance | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction, distance)
        if not 0 <= balance <= 1:
            raise ValueError(f"balance must be in [0, 1], got {balance}")
        self.margin = margin
        self.boundary = boundary
        self.temperature = temperature
        self.balance = balance

    def terms(self, pairs: ScoredPairs) -> Terms:
        values = ranked_list(
            pairs.scores,
            pairs.positives,
            pairs.negatives,
            margin=self.margin,
            boundary=self.boundary,
            temperature=self.temperature,
            balance=self.balance,
        )
        return pairs.per_anchor(values)
