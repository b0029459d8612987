"""The robust losses of the DRO paper (Qi et al., ECCV 2020) under their registered names.

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
    """The largest pair loss of the batch."""
    return Robust(pair_loss, Simplex(), reduction=reduction)


def dro_topk(k: int | str = "2b", pair_loss: PairLoss = "similarity-margin", reduction: Reduction = "mean") -> Robust:
    """The mean of the k largest pair losses of the batch; k counts unordered pairs, "2b" is twice the batch size.

    The paper's DRO-TopK_M, and TopK_B with pair_loss="binomial"; it tuned k in 2b..3.5b for batches of 80.
    """
    return Robust(pair_loss, TopK(k), reduction=reduction)


def dro_topk_pn(
    k: int | str = "2b", pair_loss: PairLoss = "similarity-margin", reduction: Reduction = "mean"
) -> Robust:
    """The k/2 largest losses of kin and the k/2 largest of others, as many of each, averaged (DRO-TopK-PN)."""
    return Robust(pair_loss, TopK(k), group="sign", balanced=True, reduction=reduction)


def dro_kl(
    gamma: float = 0.1,
    pair_loss: PairLoss = "similarity-margin",
    drop_zero_losses: bool = True,
    sample: int | None = None,
    generator: torch.Generator | None = None,
    reduction: Reduction = "mean",
) -> Robust:
    """All pairs of the batch weighted by exp(loss / gamma), zero losses left out (DRO-KL); gamma was tuned in 0.1..0.9.

    `sample` draws so many pairs instead, as the authors' code does.
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
    """Each anchor's kin and others weighted by exp(loss / gamma) apart (DRO-KL-G); near lifted structure at gamma 1."""
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
    """Weights as concentrated in Kullback-Leibler distance as `effective` equal ones; "4b" is four times the batch."""
    return Robust(pair_loss, KLBall(effective=effective), reduction=reduction)


def dro_chi2(
    effective: float | str = "4b", pair_loss: PairLoss = "similarity-margin", reduction: Reduction = "mean"
) -> Robust:
    """Weights as concentrated in squared length as `effective` equal ones: mean plus deviation while none is zero."""
    return Robust(pair_loss, ChiSquare(effective=effective), reduction=reduction)
