"""SoftTriple: classify by several centres per class, each sample softly assigned to them (Qian et al., ICCV 2019)."""

import math

import torch
from torch import Tensor

from kinfold.losses.cross_entropy import Targets
from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.options import positive
from kinfold.losses.proxies import new_proxies
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.pairs.measures import root


def class_similarity(similarity: Tensor, temperature: float = 0.1) -> Tensor:
    """(B, C) similarity to each class from those to its centres (B, C, K).

    S_c = sum_k w_k s_ck,   w = softmax over the centres k of s_ck / temperature

    >>> class_similarity(torch.tensor([[[1.0, 1.0], [0.5, 0.5]]]))
    tensor([[1.0000, 0.5000]])
    """
    # with the classes innermost the work runs along them, and not along a handful of centres
    similarity = similarity.transpose(1, 2).contiguous()
    return (torch.softmax(similarity / temperature, dim=1) * similarity).sum(dim=1)


class SoftTriple(Loss):
    """Mean cross-entropy of scale * (S_c - margin on the target) over classes, plus `regularization` times half the
    mean distance between the centres of a class, so that a class uses no more centres than it needs.

    `proxies` is (num_classes, centers, dim). scale 8 and two centres are the settings of Roth et al. (ICML 2020); the
    original has scale 20 and ten centres.
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
        generator: torch.Generator | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction)
        positive(scale=scale, temperature=temperature)
        self.centers = centers
        self.scale = scale
        self.margin = margin
        self.temperature = temperature
        self.regularization = regularization
        spread = 1.0 / math.sqrt(max(1, dim))
        self.proxies = new_proxies(num_classes, centers, dim, init="uniform", scale=spread, generator=generator)

    def terms(self, pairs: ScoredPairs) -> Terms:
        similarity = class_similarity(pairs.scores.reshape(pairs.scores.shape[0], -1, self.centers), self.temperature)
        targets = Targets(self.scale * similarity, pairs.positives, pairs.labels)
        return pairs.per_sample(targets.cross_entropy(targets.logits - self.scale * self.margin))

    def regularizer(self) -> Tensor | None:
        if self.centers == 1 or self.regularization == 0:
            return None
        assert self.proxies is not None
        half = self.proxies.dtype in (torch.float16, torch.bfloat16)
        vectors = self.proxies.float() if half else self.proxies
        products = torch.bmm(vectors, vectors.transpose(1, 2))  # (C, K, K): a normalised copy would cost far more
        lengths = root(products.diagonal(dim1=1, dim2=2))
        cosine = products / (lengths[:, :, None] * lengths[:, None, :])
        once = torch.ones(self.centers, self.centers, dtype=torch.bool, device=vectors.device).triu(diagonal=1)
        # a cosine rounded to more than one stays above the bound, and keeps its gradient
        distance = torch.where(once, 2.0 + 1e-5 - 2.0 * cosine, 1.0).clamp(min=5e-6).sqrt()
        spread = (distance * once).sum()
        return self.regularization * spread / (len(vectors) * self.centers * (self.centers - 1))
