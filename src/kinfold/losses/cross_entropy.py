"""Cross-entropy over classes, for samples of one class or several, with or without a margin on the target."""

import torch
from torch import Tensor

from kinfold.losses.logsumexp import masked_logsumexp, softplus
from kinfold.pairs.masks import LOWEST, columns, count, number


def cross_entropy(scores: Tensor, positives: Tensor, labels: Tensor | None = None, *, scale: float = 1.0) -> Tensor:
    """Loss of every sample, (B,): log sum_c exp(z_c) - z_y with z = scale * scores, averaged over its classes where it
    has several.

    `labels` (B, 1) may be given beside the mask where every sample has one class: they are found faster.

    >>> cross_entropy(torch.zeros(1, 4), torch.tensor([[True, False, False, False]])).round(decimals=4)
    tensor([1.3863])
    """
    if labels is not None:
        own = scores.gather(1, labels).squeeze(1)
    else:
        own = (scores * number(positives, scores)).sum(dim=1) / count(positives).clamp(min=1)
    return masked_logsumexp(scores, scale=scale) - scale * own


class Targets:
    """The logits of the classes that samples belong to, (B, W), apart from the rest, so that they can get a margin.

    A sample of several classes is given each of them as its target in turn, and the results are averaged.

    index (B, W): the classes of each sample; exists (B, W): which of these entries are used.
    others (B, 1): log sum exp over the classes that a sample does not belong to.
    rest (B, 1 or W): the same over all but the one target.
    """

    def __init__(self, logits: Tensor, positives: Tensor, labels: Tensor | None = None) -> None:
        if labels is not None:
            self.index, self.exists = labels, torch.ones_like(labels, dtype=torch.bool)
            self.others = masked_logsumexp(logits.scatter(1, labels, -LOWEST)).unsqueeze(1)
        else:
            self.index, self.exists = columns(positives)
            self.others = masked_logsumexp(logits, ~positives).unsqueeze(1)
        self.logits = logits.gather(1, self.index)
        width = self.index.shape[1]
        self.rest = self.others
        if width > 1:
            beside = self.exists[:, None, :] & ~torch.eye(width, dtype=torch.bool, device=logits.device)
            each = self.logits[:, None, :].expand(-1, width, -1).reshape(-1, width)
            among = masked_logsumexp(each, beside.reshape(-1, width)).reshape(-1, width)
            self.rest = torch.logaddexp(self.others, among)

    def cross_entropy(self, moved: Tensor) -> Tensor:
        """Loss of every sample, (B,), when the target's logit is replaced by `moved` (B, W)."""
        return self.mean(softplus(self.rest - moved))

    def mean(self, values: Tensor) -> Tensor:
        """Mean over the classes of each sample, (B,)."""
        return torch.where(self.exists, values, 0.0).sum(dim=1) / self.exists.sum(dim=1).clamp(min=1)
