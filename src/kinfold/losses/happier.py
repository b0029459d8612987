"""HAPPIER: hierarchical average precision, for items that are more or less relevant (Ramzi et al., ECCV 2022)."""

import torch
from torch import Tensor

from kinfold.losses.checks import check_positive
from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.roadmap import rising_step
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.pairs.distances import Distance
from kinfold.pairs.masks import count, list_columns, mask_to_float


def happier(
    similarity: Tensor, positives: Tensor, negatives: Tensor, relevance: Tensor, *, temperature: float = 0.01
) -> Tensor:
    """Loss of every anchor, at least one minus its hierarchical average precision; O(B P R) for P positives.

    1 - (1 / sum_p r_p) sum_p h_p / rank_p
    h_p = r_p + sum over the items j != p above p of min(r_p, r_j)
    rank_p = 1 + number of items j != p with r_j >= r_p above p + sum over the items with r_j < r_p of H(s_j - s_p)

    H is `rising_step`; items above are counted exactly and have no gradient. If all relevances are equal, this is the
    average precision of `sup_ap`.

    Args:
        similarity: Cosine similarities, (B, R).
        positives, negatives: Boolean masks, (B, R).
        relevance: Relevance of each item, zero for negatives, (B, R).
        temperature: Width of the sigmoid of `rising_step`.

    Returns:
        (B,).

    Examples:
        >>> positives = torch.tensor([[True, True, False]])
        >>> relevance = torch.tensor([[1.0, 0.5, 0.0]])
        >>> happier(torch.tensor([[0.9, 0.5, 0.1]]), positives, ~positives, relevance)
        tensor([0.])
    """
    index, exists = list_columns(positives)
    positive, level = similarity.gather(1, index), relevance.gather(1, index)  # (B, W)
    gap = similarity[:, None, :] - positive[:, :, None]  # (B, W, R)
    used = mask_to_float(positives | negatives, gap)[:, None, :]
    is_above = mask_to_float(gap >= 0, gap) * used  # with the item itself
    is_lower = relevance[:, None, :] < level[:, :, None]
    gained = (is_above * torch.minimum(relevance[:, None, :], level[:, :, None])).sum(dim=2)
    rank = (torch.where(is_lower, rising_step(gap, temperature=temperature), is_above) * used).sum(dim=2)
    share = torch.where(exists, gained / rank.clamp(min=1e-12), 0.0).sum(dim=1)
    total = torch.where(exists, level, 0.0).sum(dim=1)
    return torch.where(total > 0, 1.0 - share / total.masked_fill(total <= 0, 1.0), 0.0)


class Happier(Loss):
    """Mean over anchors. The relation holds the relevance of each pair; labels make it 0 or 1.

    For a tree of labels pass `relation=kinfold.pairs.tree_relation(labels)`. The paper adds normalized-softmax on the
    finest labels with weight 0.1 to 0.9 times this loss.

    Args:
        temperature: Width of the sigmoid of ranks; 0.01 as in the paper.
        balance: Whether the relevance of an item is divided by the number of items of the same relevance to its
            anchor, as in the paper: each level of a tree then has the same weight, however many items it holds.
        distance: How pairs are measured; None as the paper does. See `kinfold.pairs.distances`.
        reduction: "mean", "sum" or "none".
    """

    graded = True

    def __init__(
        self,
        temperature: float = 0.01,
        balance: bool = True,
        distance: Distance | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction, distance)
        check_positive(temperature=temperature)
        self.temperature = temperature
        self.balance = balance

    def terms(self, pairs: ScoredPairs) -> Terms:
        relevance = pairs.relevance
        if self.balance and pairs.degree is not None:  # equal for all pairs of a boolean relation
            index, exists = list_columns(pairs.positives)
            level = torch.where(exists, relevance.gather(1, index), 0.0)
            equal = (level[:, None, :] == level[:, :, None]).sum(dim=2).clamp(min=1)
            relevance = torch.zeros_like(relevance).scatter_add(1, index, level / equal)
        values = happier(pairs.scores, pairs.positives, pairs.negatives, relevance, temperature=self.temperature)
        valid = (count(pairs.positives) > 0) & (count(pairs.positives | pairs.negatives) > 1)
        if pairs.degree is None:
            valid = valid & (count(pairs.negatives) > 0)
        return Terms.over(torch.where(valid, values, 0.0), valid)
