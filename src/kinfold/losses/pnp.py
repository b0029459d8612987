"""PNP: penalize the negatives that are ranked before each positive (Li et al., AAAI 2022)."""

from typing import Literal

import torch
from torch import Tensor

from kinfold.losses.checks import check_positive
from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.pairs.distances import Distance
from kinfold.pairs.masks import list_columns, mask_to_float
from kinfold.registry import check_choice

Form = Literal["o", "iu", "ib", "ds", "dq"]


def pnp(
    similarity: Tensor,
    positives: Tensor,
    negatives: Tensor,
    *,
    form: Form = "dq",
    alpha: float = 1.0,
    b: float = 2.0,
    temperature: float = 0.01,
) -> Tensor:
    """Loss of every anchor, averaged over its positives; time and memory O(B P R) for P positives per anchor.

    z = sum_n sigmoid((s_an - s_ap) / temperature), the number of negatives before p

    "o": z        "iu": (1 + z) log(1 + z)        "ib": (b z - log(1 + b z)) / b^2
    "ds": log(1 + z)        "dq": 1 - (1 + z)^-alpha

    Args:
        similarity: Cosine similarities, (B, R).
        positives, negatives: Boolean masks, (B, R).
        form: The function of z.
        alpha: Exponent of "dq".
        b: Scale of "ib".
        temperature: Width of the sigmoid; a small one is close to a comparison.

    Returns:
        (B,).

    Examples:
        >>> positives = torch.tensor([[True, False]])
        >>> pnp(torch.tensor([[0.9, 0.1]]), positives, ~positives)
        tensor([0.])
        >>> pnp(torch.tensor([[0.1, 0.9]]), positives, ~positives)
        tensor([0.5000])
    """
    index, exists = list_columns(positives)
    positive = similarity.gather(1, index)  # (B, W)
    before = torch.sigmoid((similarity[:, None, :] - positive[:, :, None]) / temperature)  # (B, W, R)
    z = (before * mask_to_float(negatives, before)[:, None, :]).sum(dim=2)
    if form == "iu":
        z = (1.0 + z) * torch.log1p(z)
    elif form == "ib":
        z = (b * z - torch.log1p(b * z)) / b**2
    elif form == "ds":
        z = torch.log1p(z)
    elif form == "dq":
        z = 1.0 - (1.0 + z) ** -alpha
    return torch.where(exists, z, 0.0).sum(dim=1) / exists.sum(dim=1).clamp(min=1)


class PNP(Loss):
    """Mean over anchors. The anchor is not one of its own positives (in the authors' code it is).

    Args:
        form: "o" counts the negatives before a positive; "iu" and "ib" give more gradient to positives with many of
            them, "ds" and "dq" less, which the paper finds better.
        alpha: Exponent of the form "dq".
        b: Scale of the form "ib".
        temperature: Width of the sigmoid; a small one is close to a comparison.
        distance: How pairs are measured; None as the paper does. See `kinfold.pairs.distances`.
        reduction: "mean", "sum" or "none".
    """

    def __init__(
        self,
        form: Form = "dq",
        alpha: float = 1.0,
        b: float = 2.0,
        temperature: float = 0.01,
        distance: Distance | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction, distance)
        check_choice("form", form, ("o", "iu", "ib", "ds", "dq"))
        check_positive(alpha=alpha, b=b, temperature=temperature)
        self.form: Form = form
        self.alpha = alpha
        self.b = b
        self.temperature = temperature

    def terms(self, pairs: ScoredPairs) -> Terms:
        options = {"alpha": self.alpha, "b": self.b, "temperature": self.temperature}
        return pairs.per_anchor(pnp(pairs.scores, pairs.positives, pairs.negatives, form=self.form, **options))
