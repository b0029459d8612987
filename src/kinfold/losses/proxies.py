"""Class vectors that a loss owns, and the labels that index them."""

from typing import Literal

import torch
from torch import Tensor, nn

from kinfold.pairs import Labels, Relation, View
from kinfold.pairs.labels import encode
from kinfold.pairs.transforms import is_transformed
from kinfold.pairs.view import check_embeddings


def check_class_range(labels: Tensor, num_classes: int) -> None:
    """Losses with parameters per class index them by label: 0..C-1 only."""
    if is_transformed() or labels.numel() == 0:
        return
    low, high = (int(bound) for bound in torch.aminmax(labels))
    if low < 0 or high >= num_classes:
        raise ValueError(
            f"labels run from {low} to {high}, but this loss has parameters for the classes 0..{num_classes - 1} only; "
            "kinfold.pairs.reindex(labels) gives labels in that range"
        )


def new_proxies(
    *shape: int, init: Literal["normal", "uniform"], scale: float, generator: torch.Generator | None
) -> nn.Parameter:
    """A parameter of class vectors from an explicit generator (seed 0 where none is given)."""
    if any(size < 1 for size in shape):
        raise ValueError(f"num_classes, dim and the number of centres must be at least 1, got {shape}")
    source = torch.Generator().manual_seed(0) if generator is None else generator
    values = torch.empty(shape, device=source.device)
    if init == "normal":
        values.normal_(0.0, scale, generator=source)
    else:
        values.uniform_(-scale, scale, generator=source)
    return nn.Parameter(values)


def look_at_proxies(
    proxies: nn.Parameter, embeddings: Tensor, labels: Labels | None, relation: Tensor | None, *, as_anchors: bool
) -> View:
    """Samples against class vectors: a reference set whose labels are 0..C-1.

    With several vectors per class (C, K, d) the references are (C K, d), while the relation stays (B, C). With
    `as_anchors` the class vectors are compared with the samples instead.
    """
    count, dim = proxies.shape[0], proxies.shape[-1]
    anchors = check_embeddings(embeddings, "embeddings")
    if anchors.shape[1] != dim:
        raise ValueError(f"embeddings have {anchors.shape[1]} dimensions but the proxies {dim}: create with dim=")
    own: Tensor | None = None
    if relation is not None:
        if relation.dtype != torch.bool or tuple(relation.shape) != (anchors.shape[0], count):
            raise ValueError(
                f"a relation to proxies must be boolean of shape {(anchors.shape[0], count)}, "
                f"got {relation.dtype} {tuple(relation.shape)}"
            )
        found = Relation.from_matrix(relation.to(anchors.device), diagonal=False)
    elif labels is None:
        raise ValueError("give labels, or relation= with which classes each sample is kin of")
    else:
        (own,) = encode(labels, device=anchors.device)
        if own.shape[0] != anchors.shape[0]:
            raise ValueError(f"{own.shape[0]} labels for {anchors.shape[0]} embeddings: one label per row is needed")
        check_class_range(own, count)
        found = Relation.from_labels(own, torch.arange(count, device=anchors.device))
    vectors = check_embeddings(proxies.flatten(0, -2), "proxies")
    dtype = torch.promote_types(anchors.dtype, vectors.dtype)
    if as_anchors:
        turned = Relation(found.positives.T.contiguous(), found.negatives.T.contiguous())
        return View(vectors.to(dtype), anchors.to(dtype), turned, None, symmetric=False)
    return View(anchors.to(dtype), vectors.to(dtype), found, own, symmetric=False)
