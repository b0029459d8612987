"""Recall@k surrogate: sigmoids in the place of ranks and of the cut at k (Patel et al., CVPR 2022)."""

from collections.abc import Sequence

import torch
from torch import Tensor

from kinfold.losses.checks import check_positive, check_unit
from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.pairs import normalize
from kinfold.pairs.distances import Distance
from kinfold.pairs.masks import list_columns, mask_to_float, union


def recall_at_k(
    similarity: Tensor,
    positives: Tensor,
    negatives: Tensor,
    *,
    k: Sequence[int] = (1, 2, 4, 8, 16),
    temperature: float = 0.01,
    k_temperature: float = 1.0,
) -> Tensor:
    """Loss of every anchor; time and memory O(B P R) for P positives per anchor.

    1 - mean_k min(k, sum_p sigmoid((k - rank_p) / k_temperature)) / min(k, P)
    rank_p = 1 + sum over the other items j of sigmoid((s_j - s_p) / temperature)

    Args:
        similarity: Similarities, (B, R).
        positives, negatives: Boolean masks, (B, R).
        k: Numbers of results whose recall is averaged.
        temperature: Width of the sigmoid of similarities.
        k_temperature: Width of the sigmoid of ranks.

    Returns:
        (B,).

    Examples:
        >>> positives = torch.tensor([[True, False]])
        >>> recall_at_k(torch.tensor([[0.9, 0.1]]), positives, ~positives, k=[1], k_temperature=0.1)
        tensor([0.5000])
    """
    index, exists = list_columns(positives)
    positive = similarity.gather(1, index)  # (B, W)
    above = torch.sigmoid((similarity[:, None, :] - positive[:, :, None]) / temperature)  # (B, W, R)
    # the item itself counts half in the sum
    rank = 0.5 + (above * mask_to_float(union(positives, negatives), above)[:, None, :]).sum(dim=2)
    count = exists.sum(dim=1)
    recall = torch.zeros_like(similarity[:, 0])
    for cut in k:
        hits = torch.where(exists, torch.sigmoid((cut - rank) / k_temperature), 0.0).sum(dim=1)
        recall = recall + hits.clamp(max=cut) / count.clamp(min=1, max=cut)
    return torch.where(count > 0, 1.0 - recall / len(k), 0.0)


def similarity_mixup(
    embeddings: Tensor, labels: Tensor, generator: torch.Generator | None = None
) -> tuple[Tensor, Tensor]:
    """SiMix: add a virtual item between any two items of a class, at a uniform place on the line between them.

    Similarities to a virtual item are mixtures of those to its two items: it is not scaled to length one. Pass the
    result to `RecallAtK(normalize=False)`, or to another loss on dot products.

    Args:
        embeddings: (B, d); scaled to length one first.
        labels: Integers, (B,).
        generator: Source of random numbers; by default a new one with seed 0.

    Returns:
        The items and the virtual items, (B + V, d), and their labels, (B + V,).

    Examples:
        >>> mixed, labels = similarity_mixup(torch.eye(4), torch.tensor([0, 0, 0, 1]))
        >>> mixed.shape, labels.tolist()
        (torch.Size([7, 4]), [0, 0, 0, 1, 0, 0, 0])
    """
    generator = torch.Generator().manual_seed(0) if generator is None else generator
    unit = normalize(embeddings)
    first, second = (labels[:, None] == labels).triu(1).nonzero(as_tuple=True)
    share = torch.rand(len(first), 1, generator=generator, device=generator.device).to(unit)
    mixed = share * unit[first] + (1.0 - share) * unit[second]
    return torch.cat([unit, mixed]), torch.cat([labels, labels[first]])


class RecallAtK(Loss):
    """Mean over anchors. `similarity_mixup` makes the virtual items that the paper adds to a batch.

    Args:
        k: Numbers of results whose recall is averaged.
        temperature: Width of the sigmoid of similarities.
        k_temperature: Width of the sigmoid of ranks.
        normalize: True measures cosines; False dot products, for rows of `similarity_mixup`.
        distance: How pairs are measured; None as the paper does. See `kinfold.pairs.distances`.
        reduction: "mean", "sum" or "none".
    """

    def __init__(
        self,
        k: Sequence[int] = (1, 2, 4, 8, 16),
        temperature: float = 0.01,
        k_temperature: float = 1.0,
        normalize: bool = True,
        distance: Distance | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        check_unit(normalize, distance)
        self.normalize = normalize
        self.measure = "cosine" if normalize else "dot"
        super().__init__(reduction, distance)
        check_positive(temperature=temperature, k_temperature=k_temperature)
        if not k or any(cut < 1 for cut in k):
            raise ValueError(f"k must list numbers of at least 1, got {k}")
        self.k = tuple(k)
        self.temperature = temperature
        self.k_temperature = k_temperature

    def terms(self, pairs: ScoredPairs) -> Terms:
        widths = {"temperature": self.temperature, "k_temperature": self.k_temperature}
        return pairs.per_anchor(recall_at_k(pairs.scores, pairs.positives, pairs.negatives, k=self.k, **widths))
