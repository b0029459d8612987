"""Embeddings and labels of users (tensors, arrays, memory-mapped files, lists), checked and converted."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from kinfold.devices import resolve_device
from kinfold.metrics._ranking.query_gallery import Distance, QueryGallery, build_query_gallery
from kinfold.metrics._ranking.relevance import Relevance, build_relevance
from kinfold.pairs.labels import Labels, encode

Embeddings: TypeAlias = Tensor | np.ndarray[Any, Any] | Sequence[Sequence[float]]


def to_rows(embeddings: Embeddings, device: torch.device | str | None = None) -> Tensor:
    """Convert embeddings to a float32 or float64 tensor, on `device` or where they are."""
    if isinstance(embeddings, Tensor):
        rows = embeddings.detach()
    else:
        array = np.asarray(embeddings)
        if array.dtype == object or array.dtype.kind not in "fiub":
            raise ValueError(f"embeddings must be numbers, got an array of {array.dtype}")
        if array.dtype.byteorder == ">" or not array.flags.writeable or array.dtype == np.longdouble:
            array = array.astype(array.dtype.newbyteorder("=") if array.dtype != np.longdouble else np.float64)
        rows = torch.from_numpy(np.ascontiguousarray(array))
    rows = rows if device is None else rows.to(resolve_device(device))
    if rows.is_complex() or rows.dtype in (torch.float32, torch.float64):
        return rows
    return rows.to(torch.float32)


def prepare_inputs(
    embeddings: Embeddings,
    labels: Labels,
    gallery: Embeddings | None,
    gallery_labels: Labels | None,
    distance: Distance,
    device: torch.device | str | None,
) -> tuple[QueryGallery, Relevance, Tensor]:
    """Return the rows to compare, the relevant items of each query, and the labels as int64 (Q,)."""
    if (gallery is None) != (gallery_labels is None):
        raise ValueError("gallery and gallery_labels belong together: give both or none")
    gallery_rows = None if gallery is None else to_rows(gallery, device)
    query_gallery = build_query_gallery(to_rows(embeddings, device), gallery_rows, distance)
    if query_gallery.queries.shape[0] == 0:
        raise ValueError("there are no embeddings to evaluate")
    codes = encode(labels, gallery_labels, query_gallery.gallery.device)
    counts = [query_gallery.queries.shape[0], query_gallery.size]
    for name, count, code in zip(("embeddings", "gallery"), counts, codes, strict=False):
        if code.shape[0] != count:
            raise ValueError(f"{count} rows of {name} but {code.shape[0]} labels: pass one label for each row")
    return query_gallery, build_relevance(codes[0], codes[1] if len(codes) > 1 else None), codes[0]
