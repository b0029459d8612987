"""The logits of the classes of each sample, separate from all others, so that they can get a margin."""

from collections.abc import Callable

import torch
from torch import Tensor

from kinfold.losses.class_logits import TargetClasses
from kinfold.losses.logsumexp import masked_logsumexp, softplus
from kinfold.losses.terms import ScoredPairs
from kinfold.pairs.masks import HUGE, get_excluded, list_columns


class TargetLogits:
    """Logits of the classes of each sample, and log sum exp over its other classes: all that a softmax loss needs.

    With several classes per sample each of them is the target in turn, and the results are averaged.

    Args:
        classes: The classes of each sample.
        logits: Their logits, (B, W).
        negatives: log sum exp over the classes that a sample does not belong to, (B,).
        measure: Computes the squared distances (B, W) of samples and their classes, without gradient.
        lengths: Lengths of the embeddings, (B,), for a loss with `uses_lengths`.

    Attributes:
        classes: The classes of each sample.
        logits: Their logits, (B, W).
        negatives: log sum exp over the classes that a sample does not belong to, (B, 1).
    """

    def __init__(
        self,
        classes: TargetClasses,
        logits: Tensor,
        negatives: Tensor,
        measure: Callable[[], Tensor] | None = None,
        lengths: Tensor | None = None,
    ) -> None:
        self.classes = classes
        self.logits = logits
        self.negatives = negatives.unsqueeze(1)
        self._measure = measure
        self._lengths = lengths

    @classmethod
    def from_matrix(cls, logits: Tensor, pairs: ScoredPairs, measure: Callable[[Tensor], Tensor]) -> "TargetLogits":
        """Take the targets out of all logits (B, C).

        Args:
            logits: Logits of all classes, (B, C).
            pairs: The pairs of samples and class vectors that they belong to.
            measure: Computes the squared distances (B, W) of samples and the classes at positions (B, W).
        """
        if pairs.labels is None:
            index, exists = list_columns(pairs.positives)
        else:
            index, exists = pairs.labels, torch.ones_like(pairs.labels, dtype=torch.bool)
        if pairs.labels is not None and get_excluded(pairs.negatives) is None:
            negatives = masked_logsumexp(logits.scatter(1, index, -HUGE))
        else:
            negatives = masked_logsumexp(logits, pairs.negatives)
        targets = TargetClasses(index, exists)
        return cls(targets, logits.gather(1, index), negatives, lambda: measure(index), pairs.lengths)

    @property
    def rest(self) -> Tensor:
        """log sum exp over all classes except the target, (B, 1) or (B, W)."""
        width = self.logits.shape[1]
        if width == 1:
            return self.negatives
        exists = self.classes.exists
        is_other = exists[:, None, :] & ~torch.eye(width, dtype=torch.bool, device=exists.device)
        repeated = self.logits[:, None, :].expand(-1, width, -1).reshape(-1, width)
        other_positives = masked_logsumexp(repeated, is_other.reshape(-1, width)).reshape(-1, width)
        return torch.logaddexp(self.negatives, other_positives)

    def squared_distances(self) -> Tensor | None:
        """Squared distances (B, W) of samples and the vectors of their classes, without gradient; None if unknown."""
        return None if self._measure is None else self._measure()

    def get_lengths(self) -> Tensor:
        """Lengths of the embeddings, (B, 1), with their gradient.

        Raises:
            ValueError: The loss does not declare that it uses them.
        """
        if self._lengths is None:
            raise ValueError("set uses_lengths = True in the class of the loss to get the lengths of embeddings")
        return self._lengths.unsqueeze(1)

    def cross_entropy(self, target_logits: Tensor | None = None) -> Tensor:
        """Return -log softmax of the target for each sample, (B,).

        Args:
            target_logits: Replace the logits of the targets, (B, W).
        """
        return self.mean(softplus(self.rest - (self.logits if target_logits is None else target_logits)))

    def mean(self, values: Tensor) -> Tensor:
        """Mean over the classes of each sample, (B,)."""
        exists = self.classes.exists
        return torch.where(exists, values, 0.0).sum(dim=1) / exists.sum(dim=1).clamp(min=1)
