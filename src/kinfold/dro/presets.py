"""The robust losses of the DRO paper (Qi et al., ECCV 2020) under their registered names.

Examples:
    >>> import torch, kinfold
    >>> kinfold.losses.create("dro-topk", k=3)(torch.eye(4), torch.tensor([0, 0, 1, 1])).round(decimals=4)
    tensor(0.4667)
"""

import torch

from kinfold.dro.chi_square import ChiSquare
from kinfold.dro.kl import KL
from kinfold.dro.kl_ball import KLBall
from kinfold.dro.robust import Robust
from kinfold.dro.simplex import Simplex
from kinfold.dro.top_k import TopK
from kinfold.losses import Loss
from kinfold.losses.loss import Reduction

PairLoss = Loss | str


def dro_max(pair_loss: PairLoss = "similarity-margin", reduction: Reduction = "mean") -> Robust:
    """The largest pair loss of the batch (DRO-max).

    Args:
        pair_loss: A loss of kind "pair", or its registered name.
        reduction: "mean" or "sum".
    """
    return Robust(pair_loss, Simplex(), reduction=reduction)


def dro_topk(k: int | str = "2b", pair_loss: PairLoss = "similarity-margin", reduction: Reduction = "mean") -> Robust:
    """The mean of the k largest pair losses of the batch (DRO-TopK).

    The paper's TopK_M, and TopK_B with pair_loss="binomial"; it tuned k in 2b..3.5b for batches of 80.

    Args:
        k: Number of unordered pairs; "2b" is twice the batch size.
        pair_loss: A loss of kind "pair", or its registered name.
        reduction: "mean" or "sum".
    """
    return Robust(pair_loss, TopK(k), reduction=reduction)


def dro_topk_pn(
    k: int | str = "2b", pair_loss: PairLoss = "similarity-margin", reduction: Reduction = "mean"
) -> Robust:
    """The mean of the k/2 largest losses of positives and the k/2 largest of negatives (DRO-TopK-PN).

    As many positives as negatives are used.

    Args:
        k: Number of unordered pairs; "2b" is twice the batch size.
        pair_loss: A loss of kind "pair", or its registered name.
        reduction: "mean" or "sum".
    """
    return Robust(pair_loss, TopK(k), group="sign", balanced=True, reduction=reduction)


def dro_kl(
    gamma: float = 0.1,
    pair_loss: PairLoss = "similarity-margin",
    drop_zero_losses: bool = True,
    sample: int | None = None,
    generator: torch.Generator | None = None,
    reduction: Reduction = "mean",
) -> Robust:
    """All pairs of the batch weighted by exp(loss / gamma) (DRO-KL).

    Args:
        gamma: Temperature; the paper tuned it in 0.1..0.9.
        pair_loss: A loss of kind "pair", or its registered name.
        drop_zero_losses: Whether pairs with loss zero are left out.
        sample: If set, draws so many pairs with these weights, as the authors' code does.
        generator: Source of random numbers for `sample`; by default a new one with seed 0.
        reduction: "mean" or "sum".
    """
    return Robust(
        pair_loss,
        KL(gamma),
        drop_zero_losses=drop_zero_losses,
        sample=sample,
        generator=generator,
        reduction=reduction,
    )


def dro_kl_grouped(
    gamma: float = 0.1,
    pair_loss: PairLoss = "similarity-margin",
    drop_zero_losses: bool = True,
    pseudo_pair: bool = False,
    reduction: Reduction = "mean",
) -> Robust:
    """Positives and negatives of each anchor weighted separately by exp(loss / gamma) (DRO-KL-G).

    Close to lifted structure at gamma 1.

    Args:
        gamma: Temperature.
        pair_loss: A loss of kind "pair", or its registered name.
        drop_zero_losses: Whether pairs with loss zero are left out.
        pseudo_pair: Whether each group also has a constant pair at the threshold of the pair loss.
        reduction: "mean", "sum" or "none".
    """
    return Robust(
        pair_loss,
        KL(gamma),
        group="anchor-sign",
        drop_zero_losses=drop_zero_losses,
        pseudo_pair=pseudo_pair,
        reduction=reduction,
    )


def dro_kl_ball(
    effective: float | str = "4b", pair_loss: PairLoss = "similarity-margin", reduction: Reduction = "mean"
) -> Robust:
    """Weights in a ball of the Kullback-Leibler divergence around uniform.

    Args:
        effective: The weights may be as concentrated as this many equal ones; "4b" is four times the batch size.
        pair_loss: A loss of kind "pair", or its registered name.
        reduction: "mean" or "sum".
    """
    return Robust(pair_loss, KLBall(effective=effective), reduction=reduction)


def dro_chi2(
    effective: float | str = "4b", pair_loss: PairLoss = "similarity-margin", reduction: Reduction = "mean"
) -> Robust:
    """Weights in a chi-square ball around uniform: mean plus standard deviation while all weights are positive.

    Args:
        effective: The weights may be as concentrated as this many equal ones; "4b" is four times the batch size.
        pair_loss: A loss of kind "pair", or its registered name.
        reduction: "mean" or "sum".
    """
    return Robust(pair_loss, ChiSquare(effective=effective), reduction=reduction)
