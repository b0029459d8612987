"""Sub-center ArcFace: several vectors for each class, of which the nearest counts (Deng et al., ECCV 2020)."""

import math

import torch
from torch import Tensor

from kinfold.losses.arcface import add_margin_to_targets
from kinfold.losses.checks import check_positive
from kinfold.losses.loss import Reduction
from kinfold.losses.proxies import create_proxies
from kinfold.losses.proxy_loss import ProxyLoss
from kinfold.losses.target_logits import TargetLogits


def take_nearest_center(similarity: Tensor) -> Tensor:
    """Return the similarity to each class: that of its nearest center.

    Args:
        similarity: (B, C, K).

    Returns:
        (B, C).

    Examples:
        >>> take_nearest_center(torch.tensor([[[0.9, 0.1], [0.2, 0.3]]]))
        tensor([[0.9000, 0.3000]])
    """
    return similarity.amax(dim=2)


class SubCenterArcFace(ProxyLoss):
    """ArcFace with the similarity of the nearest of several centers in place of that of one class vector.

    cos(theta_c) = max over k of the cosine to center k of class c. Items with wrong labels and unusual items gather at
    centers of their own, so that the main center of a class stays clean.

    Args:
        num_classes: Number of classes.
        dim: Dimension of the embeddings.
        centers: Number of centers per class; `proxies` is (num_classes, centers, dim). One is ArcFace.
        margin: Angle added to the target, in radians, in [0, pi).
        scale: Factor of the cosines.
        class_share: Share of the classes outside the batch that each batch is compared with. Below 1 they are drawn at
            random in training mode (Partial FC), and the gradient of the proxies has the rows of the used classes only.
        generator: Source of random numbers for the initial proxies, whose seed is also that of the drawn classes; by
            default a new one with seed 0.
        reduction: "mean", "sum" or "none".
    """

    def __init__(
        self,
        num_classes: int,
        dim: int,
        centers: int = 3,
        margin: float = 0.5,
        scale: float = 16.0,
        class_share: float = 1.0,
        generator: torch.Generator | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction, class_share, generator)
        check_positive(scale=scale)
        if not 0 <= margin < math.pi:
            raise ValueError(f"margin must be in [0, pi) radians, got {margin}")
        self.centers = centers
        self.margin = margin
        self.scale = self.logit_scale = scale
        limit = 1.0 / math.sqrt(max(1, dim))
        self.proxies = create_proxies(num_classes, centers, dim, init="uniform", scale=limit, generator=generator)

    def logits(self, scores: Tensor) -> Tensor:
        return take_nearest_center(scores)

    def values(self, targets: TargetLogits) -> Tensor:
        return targets.cross_entropy(add_margin_to_targets(targets, self.margin, self.scale))
