"""What a loss or a miner looks at: anchors, the items they are compared with, and the relation between them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from kinfold.pairs.labels import Labels, encode
from kinfold.pairs.relation import Relation


@dataclass(frozen=True)
class View:
    """`anchors` (B, d) against `references` (R, d), in full precision.

    `labels` (B,) are the anchors' own, where given. `symmetric`: the references are the anchors themselves.
    `same` (B, R) marks pairs of one and the same item, `ref_labels` (R,) are the references' own, where known.
    """

    anchors: Tensor
    references: Tensor
    relation: Relation
    labels: Tensor | None
    symmetric: bool
    same: Tensor | None = None
    ref_labels: Tensor | None = None
    first: int = 0

    def rows(self, part: slice) -> "View":
        """Some of the anchors; `first` says where the first of them stood."""
        relation = Relation(self.relation.positives[part], self.relation.negatives[part])
        labels = None if self.labels is None else self.labels[part]
        same = None if self.same is None else self.same[part]
        first = self.first + part.start
        return replace(self, anchors=self.anchors[part], relation=relation, labels=labels, same=same, first=first)


def view(
    embeddings: Tensor,
    labels: Labels | None = None,
    *,
    relation: Tensor | None = None,
    ref_embeddings: Tensor | None = None,
    ref_labels: Labels | None = None,
    ids: Tensor | None = None,
    ref_ids: Tensor | None = None,
) -> View:
    """Check what the user gave and lay it out as anchors, references and relation.

    Kinship comes from `labels`, or from `relation` (B, R) where that is given. With `ref_embeddings` only anchor x
    reference pairs count. Equal `ids` are one and the same item and make no pair.
    """
    anchors = check_embeddings(embeddings, "embeddings")
    symmetric = ref_embeddings is None
    if ref_embeddings is None:
        if ref_labels is not None or ref_ids is not None:
            raise ValueError("ref_labels and ref_ids describe ref_embeddings: give those too")
        references = anchors
    else:
        references = check_embeddings(ref_embeddings, "ref_embeddings")
        if references.shape[0] == 0:  # a memory that was never filled does not know its width
            references = references.new_zeros(0, anchors.shape[1])
        if references.shape[1] != anchors.shape[1]:
            raise ValueError(
                f"embeddings have {anchors.shape[1]} dimensions but ref_embeddings have {references.shape[1]}"
            )
        dtype = torch.promote_types(anchors.dtype, references.dtype)
        anchors, references = anchors.to(dtype), references.to(anchors.device, dtype)
    shape = (anchors.shape[0], references.shape[0])
    own, theirs = _labels(labels, None if symmetric else ref_labels, shape, anchors.device)
    same = _same(ids, ref_ids, shape, anchors.device, symmetric=symmetric)
    if relation is not None:
        if tuple(relation.shape) != shape:
            raise ValueError(f"relation must have shape {shape} (anchors, references), got {tuple(relation.shape)}")
        found = Relation.from_matrix(relation.to(anchors.device), same, diagonal=symmetric)
    elif own is None:
        raise ValueError("give labels, or relation= with who is kin of whom")
    elif not symmetric and theirs is None:
        raise ValueError("ref_embeddings need ref_labels, or relation= of shape (anchors, references)")
    else:
        found = Relation.from_labels(own, theirs, same)
    return View(anchors, references, found, own, symmetric, same, theirs)


def check_embeddings(embeddings: Tensor, name: str) -> Tensor:
    """The embeddings in full precision: float16 and bfloat16 become float32."""
    if not isinstance(embeddings, Tensor):
        raise ValueError(f"{name} must be a torch tensor, got {type(embeddings).__name__}: use torch.as_tensor")
    if embeddings.dim() != 2 or not embeddings.is_floating_point():
        raise ValueError(
            f"{name} must be a floating point tensor of shape (B, d), got {embeddings.dtype} {tuple(embeddings.shape)}"
        )
    return embeddings.float() if embeddings.dtype in (torch.float16, torch.bfloat16) else embeddings


@contextmanager
def full_precision(embeddings: Tensor) -> Iterator[None]:
    """Switch autocast off inside: similarities near one need more digits than half precision has."""
    if not isinstance(embeddings, Tensor):
        raise ValueError(f"embeddings must be a torch tensor, got {type(embeddings).__name__}: use torch.as_tensor")
    with torch.autocast(device_type=embeddings.device.type, enabled=False):
        yield


def _labels(
    labels: Labels | None, ref_labels: Labels | None, shape: tuple[int, int], device: torch.device
) -> tuple[Tensor | None, Tensor | None]:
    if labels is None:
        if ref_labels is not None:
            raise ValueError("ref_labels were given without labels")
        return None, None
    encoded = encode(labels, ref_labels, device)
    for name, found, expected in zip(("labels", "ref_labels"), encoded, shape, strict=False):
        if found.shape[0] != expected:
            raise ValueError(f"{found.shape[0]} {name} for {expected} embeddings: one label per row is needed")
    return encoded[0], encoded[1] if len(encoded) == 2 else None


def _same(
    ids: Tensor | None, ref_ids: Tensor | None, shape: tuple[int, int], device: torch.device, *, symmetric: bool
) -> Tensor | None:
    """(B, R) True where both sides are one and the same item."""
    if ids is None and ref_ids is None:
        return None
    if ids is None or (ref_ids is None and not symmetric):
        raise ValueError("ids and ref_ids go together: items are told apart only when both sides have them")
    columns = ids if ref_ids is None else ref_ids
    for name, found, expected in (("ids", ids, shape[0]), ("ref_ids", columns, shape[1])):
        if found.dtype != torch.int64 or tuple(found.shape) != (expected,):
            raise ValueError(f"{name} must be int64 of shape ({expected},), got {found.dtype} {tuple(found.shape)}")
    return ids.to(device)[:, None] == columns.to(device)[None, :]
