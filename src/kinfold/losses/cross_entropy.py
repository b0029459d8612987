"""Cross-entropy over classes, for samples of one class or several, with or without a margin on the target."""

import torch
from torch import Tensor

from kinfold.losses.logsumexp import masked_logsumexp, softplus
from kinfold.pairs.masks import HUGE, count, list_columns, mask_to_float


def cross_entropy(scores: Tensor, positives: Tensor, labels: Tensor | None = None, *, scale: float = 1.0) -> Tensor:
    """Loss of every sample, averaged over its classes if it has several.

    log sum_c exp(z_c) - z_y   with z = scale * scores

    Args:
        scores: Score of each class, (B, C).
        positives: Boolean mask of the classes of each sample, (B, C).
        labels: (B, 1), if every sample has exactly one class; faster than the mask.
        scale: Factor of the scores.

    Returns:
        (B,).

    Examples:
        >>> cross_entropy(torch.zeros(1, 4), torch.tensor([[True, False, False, False]])).round(decimals=4)
        tensor([1.3863])
    """
    if labels is not None:
        target = scores.gather(1, labels).squeeze(1)
    else:
        target = (scores * mask_to_float(positives, scores)).sum(dim=1) / count(positives).clamp(min=1)
    return masked_logsumexp(scores, scale=scale) - scale * target


class TargetLogits:
    """The logits of the classes of each sample, separate from the other logits, so that they can get a margin.

    With several classes per sample each of them is the target in turn, and the results are averaged.

    Args:
        logits: (B, C).
        positives: Boolean mask of the classes of each sample, (B, C).
        labels: (B, 1), if every sample has exactly one class.

    Attributes:
        index: Classes of each sample, (B, W).
        exists: Which entries of `index` are used, (B, W).
        logits: Logits of these classes, (B, W).
        negatives: log sum exp over the classes that a sample does not belong to, (B, 1).
        rest: log sum exp over all classes except the target, (B, 1) or (B, W).
    """

    def __init__(self, logits: Tensor, positives: Tensor, labels: Tensor | None = None) -> None:
        if labels is not None:
            self.index, self.exists = labels, torch.ones_like(labels, dtype=torch.bool)
            self.negatives = masked_logsumexp(logits.scatter(1, labels, -HUGE)).unsqueeze(1)
        else:
            self.index, self.exists = list_columns(positives)
            self.negatives = masked_logsumexp(logits, ~positives).unsqueeze(1)
        self.logits = logits.gather(1, self.index)
        width = self.index.shape[1]
        self.rest = self.negatives
        if width > 1:
            is_other = self.exists[:, None, :] & ~torch.eye(width, dtype=torch.bool, device=logits.device)
            repeated = self.logits[:, None, :].expand(-1, width, -1).reshape(-1, width)
            other_positives = masked_logsumexp(repeated, is_other.reshape(-1, width)).reshape(-1, width)
            self.rest = torch.logaddexp(self.negatives, other_positives)

    def cross_entropy(self, target_logits: Tensor) -> Tensor:
        """Loss of every sample (B,) if the logits of the targets are replaced by `target_logits` (B, W)."""
        return self.mean(softplus(self.rest - target_logits))

    def mean(self, values: Tensor) -> Tensor:
        """Mean over the classes of each sample, (B,)."""
        return torch.where(self.exists, values, 0.0).sum(dim=1) / self.exists.sum(dim=1).clamp(min=1)
