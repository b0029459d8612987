"""Hierarchical triplet loss (HTL): the margin depends on how near two classes are in a tree (Ge et al., ECCV 2018)."""

import torch
from torch import Tensor

from kinfold.losses.class_hierarchy import ClassHierarchy
from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.proxies import check_class_range
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.losses.triplet import all_triplets
from kinfold.pairs.masks import count


def hierarchical_triplet(
    squared_distance: Tensor, positives: Tensor, negatives: Tensor, margins: Tensor
) -> tuple[Tensor, Tensor]:
    """Sum over all triplets of each anchor, and the number of active ones.

    sum_p sum_n [d_ap - d_an + margin_an]+

    Args:
        squared_distance: (B, R).
        positives, negatives: Boolean masks, (B, R).
        margins: Margin of every pair of an anchor and a negative, in a shape that broadcasts to (B, R).

    Returns:
        Sums (B,) and counts (B,).

    Examples:
        >>> distance, positives = torch.tensor([[0.5, 0.6, 2.0]]), torch.tensor([[True, False, False]])
        >>> hierarchical_triplet(distance, positives, ~positives, torch.tensor([[0.0, 0.2, 1.6]]))[0]
        tensor([0.2000])
    """
    # a margin of the negative is a shift of its distance
    shifted = torch.where(negatives, squared_distance - margins, squared_distance)
    return all_triplets(shifted, positives, negatives, margin=0.0)


class HierarchicalTriplet(Loss):
    """Mean over all triplets with a margin for each pair of classes, on squared distances of unit vectors.

    margin(a, n) = beta + d_H(class of a, class of n) - s(class of a)

    d_H is the threshold of the level on which a tree of all classes merges the two classes, and s the mean squared
    distance of two items of the class. Training updates the tree from the embeddings of all items; outside of it call
    `hierarchy.update(embeddings, labels)`. Before the first update, and without `num_classes`, the margin is
    `start_margin`: the paper starts from a network that was trained with a triplet loss.

    Called HTL, or HDL in one table. Batches of the paper come from the sampler `anchor-neighbor`. Not stated where it
    could be looked up: how chains of near classes are merged (here transitively), and the start margin.

    Args:
        num_classes: Number of training classes; None for a plain triplet loss.
        beta: Constant part of the margin; 0.1 as in the paper.
        levels: Levels of the tree above the lowest; 16 as in code by others; the paper's number was not found.
        every: Epochs between two updates of the tree; the paper updates it after every epoch.
        start_margin: Margin before the first update.
        reduction: "mean", "sum" or "none".

    Raises:
        ValueError: An option is out of range.

    Examples:
        >>> loss = HierarchicalTriplet(num_classes=2)
        >>> x, y = torch.eye(4), torch.arange(4) // 2
        >>> loss.hierarchy.update(x, y)
        >>> loss(x, y).round(decimals=4)  # all distances are 2, and the two classes are as far apart as their items
        tensor(0.2250)
    """

    measure = "squared-euclidean"
    fixed_measure = "the tree that its margins come from is built from unit vectors"

    def __init__(
        self,
        num_classes: int | None = None,
        beta: float = 0.1,
        levels: int = 16,
        every: int = 1,
        start_margin: float = 0.2,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction)
        self.num_classes = num_classes
        self.beta = beta
        self.levels = levels
        self.every = every
        self.start_margin = start_margin
        self.hierarchy = None if num_classes is None else ClassHierarchy(num_classes, levels, every)
        self.uses_labels = num_classes is not None

    def terms(self, pairs: ScoredPairs) -> Terms:
        sums, _ = hierarchical_triplet(pairs.scores, pairs.positives, pairs.negatives, self._find_margins(pairs))
        return Terms.over(sums, count(pairs.positives).long() * count(pairs.negatives))

    def _find_margins(self, pairs: ScoredPairs) -> Tensor:
        start = pairs.scores.new_tensor(self.start_margin)
        if self.hierarchy is None:
            return start
        if pairs.labels is None or pairs.reference_labels is None:
            raise ValueError(
                "hierarchical-triplet with num_classes has a margin for each pair of classes: pass labels, and "
                "ref_labels for references, also beside relation="
            )
        anchors, references = pairs.labels.flatten(), pairs.reference_labels
        for labels in (anchors, references):
            check_class_range(labels, self.hierarchy.num_classes)
        far = self.hierarchy.merge_thresholds(anchors, references)
        margins = (self.beta + far - self.hierarchy.spreads[anchors, None]).to(pairs.scores.dtype)
        return torch.where(self.hierarchy.is_known, margins, start)
