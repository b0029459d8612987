"""Scores of embeddings for every class, from the class vectors of a loss."""

import torch
from torch import Tensor

from kinfold.losses import Loss
from kinfold.losses.adaface import AdaFace
from kinfold.losses.arcface import ArcFace
from kinfold.losses.cosface import CosFace
from kinfold.losses.magface import MagFace
from kinfold.losses.normalized_softmax import NormalizedSoftmax
from kinfold.losses.proxy_anchor import ProxyAnchor
from kinfold.losses.proxy_nca import ProxyNCA
from kinfold.losses.soft_triple import SoftTriple, pool_centers
from kinfold.losses.softmax import Softmax
from kinfold.losses.sphereface import SphereFace
from kinfold.losses.sub_center_arcface import SubCenterArcFace, take_nearest_center
from kinfold.pairs import full_precision, normalize
from kinfold.pairs.pair_batch import check_embeddings


def compute_class_logits(loss: Loss, embeddings: Tensor) -> Tensor:
    """Return the score of every class, without the margin of the loss; the largest is the predicted class.

    arcface, cosface, magface, adaface, sub-center-arcface: scale times cosine; sphereface: cosine times the length of
    the embedding; normalized-softmax: cosine / temperature; softmax: dot product plus bias; proxy-nca: minus the
    squared distance of the scaled vectors; proxy-anchor: cosine; soft-triple: the pooled cosine of the centers. These
    are the values of `get_logits` in pytorch-metric-learning, except that its ProxyNCALoss returns distances, of which
    the smallest is the predicted class.

    Args:
        loss: A loss with class vectors.
        embeddings: (B, d).

    Returns:
        (B, number of classes).

    Raises:
        ValueError: The loss has no class vectors.

    Examples:
        >>> import kinfold
        >>> loss = kinfold.losses.create("proxy-anchor", num_classes=2, dim=2)
        >>> loss.proxies.data = torch.eye(2)
        >>> compute_class_logits(loss, torch.tensor([[0.0, 3.0]])).detach()
        tensor([[0., 1.]])
    """
    with full_precision(embeddings):
        x = check_embeddings(embeddings, "embeddings")
        proxies = loss.proxies
        if proxies is None:
            raise ValueError(
                f"{type(loss).__name__} has no class vectors, so it cannot score classes; losses with num_classes= can"
            )
        vectors = check_embeddings(proxies.flatten(0, -2), "proxies").to(x.dtype)
        if x.shape[1] != vectors.shape[1]:
            raise ValueError(f"embeddings have {x.shape[1]} dimensions but the class vectors {vectors.shape[1]}")
        if isinstance(loss, Softmax):
            assert loss.bias is not None
            return x @ vectors.T + loss.bias.to(x.dtype)
        if isinstance(loss, SphereFace):
            return x @ normalize(vectors).T
        cosine = normalize(x) @ normalize(vectors).T
        if isinstance(loss, ArcFace | CosFace | MagFace | AdaFace):
            return loss.scale * cosine
        if isinstance(loss, SubCenterArcFace):
            return loss.scale * take_nearest_center(cosine.reshape(len(x), -1, loss.centers))
        if isinstance(loss, NormalizedSoftmax):
            return cosine / loss.temperature
        if isinstance(loss, ProxyNCA):
            return loss.scale**2 * (2.0 * cosine - 2.0)
        if isinstance(loss, SoftTriple):
            return pool_centers(cosine.reshape(len(x), -1, loss.centers), loss.temperature)
        if isinstance(loss, ProxyAnchor):
            return cosine
    raise ValueError(
        f"it is not known how {type(loss).__name__} scores classes: compute it from loss.proxies "
        f"{tuple(torch.as_tensor(loss.proxies).shape)}"
    )
