"""SoftTriple: classify by several centers per class, with soft assignment of each sample (Qian et al., ICCV 2019)."""

import math

import torch
from torch import Tensor

from kinfold.losses.checks import check_positive
from kinfold.losses.loss import Reduction
from kinfold.losses.proxies import create_proxies
from kinfold.losses.proxy_loss import ProxyLoss
from kinfold.losses.target_logits import TargetLogits
from kinfold.pairs.measures import safe_sqrt


def pool_centers(similarity: Tensor, temperature: float = 0.1) -> Tensor:
    """Similarity to each class from the similarities to its centers.

    S_c = sum_k w_k s_ck,   w = softmax over the centers k of s_ck / temperature

    Args:
        similarity: (B, C, K).
        temperature: Divisor of the similarities in the softmax.

    Returns:
        (B, C).

    Examples:
        >>> pool_centers(torch.tensor([[[1.0, 1.0], [0.5, 0.5]]]))
        tensor([[1.0000, 0.5000]])
    """
    # with the classes as the last dimension, operations run over them and not over a few centers
    similarity = similarity.transpose(1, 2).contiguous()
    return (torch.softmax(similarity / temperature, dim=1) * similarity).sum(dim=1)


class SoftTriple(ProxyLoss):
    """Mean cross-entropy of scale * (S_c - margin on the target), plus a penalty on the spread of the centers.

    The penalty is `regularization` times half the mean distance between the centers of a class, so that a class uses no
    more centers than it needs. The defaults are those of Roth et al. (ICML 2020); the paper has scale 20 and ten
    centers.

    Args:
        num_classes: Number of classes.
        dim: Dimension of the embeddings.
        centers: Number of centers per class; `proxies` is (num_classes, centers, dim).
        scale: Factor of the similarities.
        margin: Subtracted from the similarity of the target.
        temperature: Divisor of the similarities in the softmax over the centers of a class.
        regularization: Weight of the penalty.
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
        centers: int = 2,
        scale: float = 8.0,
        margin: float = 0.01,
        temperature: float = 0.1,
        regularization: float = 0.2,
        class_share: float = 1.0,
        generator: torch.Generator | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction, class_share, generator)
        check_positive(scale=scale, temperature=temperature)
        self.centers = centers
        self.scale = self.logit_scale = scale
        self.margin = margin
        self.temperature = temperature
        self.regularization = regularization
        limit = 1.0 / math.sqrt(max(1, dim))
        self.proxies = create_proxies(num_classes, centers, dim, init="uniform", scale=limit, generator=generator)

    def logits(self, scores: Tensor) -> Tensor:
        return pool_centers(scores, self.temperature * self.scale)

    def values(self, targets: TargetLogits) -> Tensor:
        return targets.cross_entropy(targets.logits - self.scale * self.margin)

    def regularizer(self) -> Tensor | None:
        if self.centers == 1 or self.regularization == 0:
            return None
        assert self.proxies is not None
        is_half = self.proxies.dtype in (torch.float16, torch.bfloat16)
        vectors = self.proxies.float() if is_half else self.proxies
        products = torch.bmm(vectors, vectors.transpose(1, 2))  # (C, K, K): a normalized copy would cost far more
        lengths = safe_sqrt(products.diagonal(dim1=1, dim2=2))
        cosine = products / (lengths[:, :, None] * lengths[:, None, :])
        once = torch.ones(self.centers, self.centers, dtype=torch.bool, device=vectors.device).triu(diagonal=1)
        # a cosine rounded above one stays above the bound of the clamp, and keeps its gradient
        distance = torch.where(once, 2.0 + 1e-5 - 2.0 * cosine, 1.0).clamp(min=5e-6).sqrt()
        spread = self.sum_over_shards((distance * once).sum())
        return self.regularization * spread / (self.num_classes * self.centers * (self.centers - 1))
