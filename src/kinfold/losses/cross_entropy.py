"""Cross-entropy over classes, for samples of one class or several, with or without a margin on the target."""

import torch
from torch import Tensor

from kinfold.losses.terms import masked_logsumexp, softplus


def cross_entropy(logits: Tensor, positives: Tensor) -> Tensor:
    """Loss of every sample, (B,): log sum_c exp(z_c) - z_y, averaged over its classes where it has several.

    >>> cross_entropy(torch.zeros(1, 4), torch.tensor([[True, False, False, False]])).round(decimals=4)
    tensor([1.3863])
    """
    own = torch.where(positives, logits, 0.0).sum(dim=1) / positives.sum(dim=1).clamp(min=1)
    return torch.logsumexp(logits, dim=1) - own


class Targets:
    """The logits of the classes that samples belong to, (B, W), apart from the rest, so that they can get a margin.

    A sample of several classes is given each of them as its target in turn, and the results are averaged.
    """

    def __init__(self, logits: Tensor, positives: Tensor, *, one_class: bool) -> None:
        # labels give one class each; otherwise a fixed width is needed while compiling
        width = 1 if one_class else logits.shape[1]
        if not one_class and not torch.compiler.is_compiling():
            width = max(1, int(positives.sum(dim=1).max()))
        exists, order = positives.to(torch.uint8).topk(width, dim=1)
        self.exists = exists.bool()
        self.logits = logits.gather(1, order)
        rest = masked_logsumexp(logits, ~positives)[:, None]
        if width == 1:
            self.rest = rest
        else:
            others = self.exists[:, None, :] & ~torch.eye(width, dtype=torch.bool, device=logits.device)
            beside = masked_logsumexp(self.logits[:, None, :].expand(-1, width, -1), others, dim=2)
            self.rest = torch.logaddexp(rest, beside)

    def cross_entropy(self, moved: Tensor) -> Tensor:
        """Loss of every sample, (B,), when the target's logit is replaced by `moved` (B, W)."""
        values = torch.where(self.exists, softplus(self.rest - moved), 0.0)
        return values.sum(dim=1) / self.exists.sum(dim=1).clamp(min=1)
