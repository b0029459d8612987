"""Class vectors (proxies) that are parameters of a loss, and the labels that index them."""

from typing import Literal

import torch
from torch import Tensor, nn

from kinfold.losses.class_shards import ClassShard
from kinfold.pairs import Labels, PairBatch, Relation
from kinfold.pairs.labels import encode
from kinfold.pairs.pair_batch import check_embeddings
from kinfold.pairs.relation_source import LabelRelation, MatrixRelation, RelationSource
from kinfold.pairs.transforms import is_transformed


def check_class_range(labels: Tensor, num_classes: int) -> None:
    """Raise ValueError for labels outside 0..C-1, which index the parameters of a loss."""
    if is_transformed() or labels.numel() == 0:
        return
    low, high = torch.stack(torch.aminmax(labels)).tolist()  # one wait for the device
    if low < 0 or high >= num_classes:
        raise ValueError(
            f"labels run from {low} to {high}, but this loss has parameters for the classes 0..{num_classes - 1} only; "
            "kinfold.pairs.reindex(labels) returns labels in that range"
        )


def create_proxies(
    *shape: int, init: Literal["normal", "uniform"], scale: float, generator: torch.Generator | None
) -> nn.Parameter:
    """Create a parameter of class vectors with random values from `generator`, by default a new one with seed 0."""
    if any(size < 1 for size in shape):
        raise ValueError(f"num_classes, dim and the number of centers must be at least 1, got {shape}")
    generator = torch.Generator().manual_seed(0) if generator is None else generator
    values = torch.empty(shape, device=generator.device)
    if init == "normal":
        values.normal_(0.0, scale, generator=generator)
    else:
        values.uniform_(-scale, scale, generator=generator)
    return nn.Parameter(values)


def make_proxy_batch(
    proxies: nn.Parameter,
    embeddings: Tensor,
    labels: Labels | None,
    relation: Tensor | None,
    *,
    as_anchors: bool,
    shard: ClassShard | None = None,
) -> PairBatch:
    """Make a batch of samples against class vectors: a reference set whose labels are 0..C-1.

    With several vectors per class (C, K, d) the references are (C K, d), while the relation stays (B, C). With
    `as_anchors` the class vectors are the anchors and the samples the references. With `shard`, labels of classes of
    other processes are outside of the range of the class vectors.
    """
    num_classes, dim = proxies.shape[0], proxies.shape[-1]
    anchors = check_embeddings(embeddings, "embeddings")
    if anchors.shape[1] != dim:
        raise ValueError(f"embeddings have {anchors.shape[1]} dimensions but the proxies {dim}: create with dim=")
    codes: Tensor | None = None
    source: RelationSource
    if relation is not None and shard is not None:
        raise ValueError("a loss whose classes are sharded over processes takes labels, and no relation")
    if relation is not None:
        if relation.dtype != torch.bool or tuple(relation.shape) != (anchors.shape[0], num_classes):
            raise ValueError(
                f"a relation to proxies must be boolean of shape {(anchors.shape[0], num_classes)}, "
                f"got {relation.dtype} {tuple(relation.shape)}"
            )
        matrix = relation.to(anchors.device)
        source = MatrixRelation(Relation.from_matrix(matrix.T if as_anchors else matrix, diagonal=False))
    elif labels is None:
        raise ValueError(
            "the classes of the samples are unknown: pass labels, or relation= of shape (samples, classes)"
        )
    else:
        (codes,) = encode(labels, device=anchors.device)
        if codes.shape[0] != anchors.shape[0]:
            raise ValueError(f"{codes.shape[0]} labels for {anchors.shape[0]} embeddings: one label per row is needed")
        check_class_range(codes, num_classes if shard is None else shard.total)
        codes = codes if shard is None else codes - shard.first
        classes = torch.arange(num_classes, device=anchors.device)
        source = LabelRelation(classes, codes) if as_anchors else LabelRelation(codes, classes)
    vectors = check_embeddings(proxies.flatten(0, -2), "proxies")
    dtype = torch.promote_types(anchors.dtype, vectors.dtype)
    if as_anchors:
        return PairBatch(vectors.to(dtype), anchors.to(dtype), source, None, symmetric=False)
    return PairBatch(anchors.to(dtype), vectors.to(dtype), source, codes, symmetric=False)
