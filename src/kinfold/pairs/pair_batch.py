"""The checked arguments of one call of a loss or a miner: anchors, references, and the relation between them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from kinfold.pairs.labels import Labels, encode
from kinfold.pairs.relation import Relation
from kinfold.pairs.relation_source import LabelRelation, MatrixRelation, RelationSource


@dataclass(frozen=True)
class PairBatch:
    """Anchors and references in full precision, with the relation between them.

    Attributes:
        anchors: Embeddings, (B, d).
        references: Embeddings that the anchors are compared with, (R, d).
        source: Positive and negative pairs, for any tile of (B, R).
        labels: Labels of the anchors, (B,), if there are any.
        symmetric: Whether the references are the anchors themselves.
        ids, ref_ids: Equal ids are the same item, (B,) and (R,); None if there are none.
        ref_labels: Labels of the references, (R,), if there are any.
        first_row: Index of the first anchor in the whole batch; not zero in a row chunk.
        weights: Weight of each anchor in a loss, (B,), if there are any.
    """

    anchors: Tensor
    references: Tensor
    source: RelationSource
    labels: Tensor | None
    symmetric: bool
    ids: Tensor | None = None
    ref_ids: Tensor | None = None
    ref_labels: Tensor | None = None
    first_row: int = 0
    weights: Tensor | None = None

    @cached_property
    def relation(self) -> Relation:
        """The masks of all pairs, (B, R)."""
        return self.source.tile()

    @property
    def same_item(self) -> Tensor | None:
        """Boolean (B, R), pairs of an item with itself; None if there are no ids."""
        if self.ids is None or self.ref_ids is None:
            return None
        return self.ids[:, None] == self.ref_ids[None, :]

    def select_rows(self, rows: slice) -> "PairBatch":
        """Return the part of the batch with these anchors and all references."""
        return replace(
            self,
            anchors=self.anchors[rows],
            source=self.source.select_rows(rows),
            labels=None if self.labels is None else self.labels[rows],
            ids=None if self.ids is None else self.ids[rows],
            first_row=self.first_row + rows.start,
            weights=None if self.weights is None else self.weights[rows],
        )


def make_pair_batch(
    embeddings: Tensor,
    labels: Labels | None = None,
    *,
    relation: Tensor | None = None,
    ref_embeddings: Tensor | None = None,
    ref_labels: Labels | None = None,
    ids: Tensor | None = None,
    ref_ids: Tensor | None = None,
) -> PairBatch:
    """Check the arguments of a loss or a miner and collect them in a `PairBatch`.

    Args:
        embeddings: Anchors, (B, d), any floating point type.
        labels: (B,), integers or strings. Items with equal labels are positives.
        relation: (B, R), boolean or real in [0, 1]; replaces the labels.
        ref_embeddings: References, (R, d). Only pairs of an anchor and a reference are used then.
        ref_labels: (R,), labels of the references.
        ids: (B,), int64. Equal ids are the same item, and the pair of an item with itself is not used.
        ref_ids: (R,), ids of the references.

    Raises:
        ValueError: An argument has a wrong type or shape, is missing, or would be ignored.
    """
    anchors = check_embeddings(embeddings, "embeddings")
    symmetric = ref_embeddings is None
    if ref_embeddings is None:
        if ref_labels is not None or ref_ids is not None:
            raise ValueError("ref_labels and ref_ids describe ref_embeddings: pass those too")
        references = anchors
    else:
        references = check_embeddings(ref_embeddings, "ref_embeddings")
        if references.shape[0] == 0:  # a memory that was never filled has no dimension yet
            references = references.new_zeros(0, anchors.shape[1])
        if references.shape[1] != anchors.shape[1]:
            raise ValueError(
                f"embeddings have {anchors.shape[1]} dimensions but ref_embeddings have {references.shape[1]}"
            )
        dtype = torch.promote_types(anchors.dtype, references.dtype)
        anchors, references = anchors.to(dtype), references.to(anchors.device, dtype)
    shape = (anchors.shape[0], references.shape[0])
    codes, ref_codes = _encode_labels(labels, None if symmetric else ref_labels, shape, anchors.device)
    ids, ref_ids = _check_ids(ids, ref_ids, shape, anchors.device, symmetric=symmetric)
    source: RelationSource
    if relation is not None:
        if tuple(relation.shape) != shape:
            raise ValueError(f"relation must have shape {shape} (anchors, references), got {tuple(relation.shape)}")
        same_item = None if ids is None or ref_ids is None else ids[:, None] == ref_ids[None, :]
        matrix = relation.to(anchors.device)
        source = MatrixRelation(Relation.from_matrix(matrix, same_item, diagonal=symmetric))
    elif codes is None:
        raise ValueError("positives and negatives are unknown: pass labels, or relation= with a matrix of pairs")
    elif not symmetric and ref_codes is None:
        raise ValueError("ref_embeddings need ref_labels, or relation= of shape (anchors, references)")
    else:
        source = LabelRelation(codes, ref_codes, ids, ref_ids)
    return PairBatch(anchors, references, source, codes, symmetric, ids, ref_ids, ref_codes)


def check_embeddings(embeddings: Tensor, name: str) -> Tensor:
    """Return the embeddings in full precision: float16 and bfloat16 become float32."""
    _check_tensor(embeddings, name)
    if embeddings.dim() != 2 or not embeddings.is_floating_point():
        raise ValueError(
            f"{name} must be a floating point tensor of shape (B, d), got {embeddings.dtype} {tuple(embeddings.shape)}"
        )
    return embeddings.float() if embeddings.dtype in (torch.float16, torch.bfloat16) else embeddings


@contextmanager
def full_precision(embeddings: Tensor) -> Iterator[None]:
    """Disable autocast inside the block: similarities near one need more digits than half precision has.

    Args:
        embeddings: A tensor on the device whose autocast is disabled.
    """
    _check_tensor(embeddings, "embeddings")
    with torch.autocast(device_type=embeddings.device.type, enabled=False):
        yield


def _check_tensor(embeddings: object, name: str) -> None:
    if not isinstance(embeddings, Tensor):
        raise ValueError(f"{name} must be a torch tensor, got {type(embeddings).__name__}: use torch.as_tensor")


def _encode_labels(
    labels: Labels | None, ref_labels: Labels | None, shape: tuple[int, int], device: torch.device
) -> tuple[Tensor | None, Tensor | None]:
    if labels is None:
        if ref_labels is not None:
            raise ValueError("ref_labels were passed without labels: pass both")
        return None, None
    codes = encode(labels, ref_labels, device)
    for name, entry, expected in zip(("labels", "ref_labels"), codes, shape, strict=False):
        if entry.shape[0] != expected:
            raise ValueError(f"{entry.shape[0]} {name} for {expected} embeddings: one label per row is needed")
    return codes[0], codes[1] if len(codes) == 2 else None


def _check_ids(
    ids: Tensor | None, ref_ids: Tensor | None, shape: tuple[int, int], device: torch.device, *, symmetric: bool
) -> tuple[Tensor | None, Tensor | None]:
    """Ids of the anchors and of the references on `device`; both None without ids."""
    if ids is None and ref_ids is None:
        return None, None
    if ids is None or (ref_ids is None and not symmetric):
        raise ValueError("ids and ref_ids go together: pass both, so that equal items can be recognized")
    columns = ids if ref_ids is None else ref_ids
    for name, entry, expected in (("ids", ids, shape[0]), ("ref_ids", columns, shape[1])):
        if entry.dtype != torch.int64 or tuple(entry.shape) != (expected,):
            raise ValueError(f"{name} must be int64 of shape ({expected},), got {entry.dtype} {tuple(entry.shape)}")
    return ids.to(device), columns.to(device)


def nan_unless_finite(batch: PairBatch) -> Tensor:
    """Return zero, or NaN if an embedding is NaN or infinite.

    Comparisons, hinges and miners turn NaN into False, so that a loss could be finite although an embedding is not.
    This is added to the loss to prevent that. It stays on the device: the host does not wait for it.
    """
    total = batch.anchors.new_zeros(())
    for rows in (batch.anchors,) if batch.symmetric else (batch.anchors, batch.references):
        if rows.numel():
            lowest, highest = rows.detach().aminmax()
            total = total + lowest * 0.0 + highest * 0.0
    return total
