"""What users bring (tensors, arrays, memory-mapped files, lists; any labels), checked and ready to compare."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from kinfold.devices import resolve_device
from kinfold.metrics._ranking.query_gallery import Distance, QueryGallery, prepare_rows
from kinfold.metrics._ranking.relevance import Relevance, relevance
from kinfold.pairs.labels import Labels, encode

Embeddings: TypeAlias = Tensor | np.ndarray[Any, Any] | Sequence[Sequence[float]]


def as_rows(embeddings: Embeddings, device: torch.device | str | None = None) -> Tensor:
    """A tensor on `device`, or where it was; float16 and integers become float32."""
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


def prepare(
    embeddings: Embeddings,
    labels: Labels,
    gallery: Embeddings | None,
    gallery_labels: Labels | None,
    distance: Distance,
    device: torch.device | str | None,
) -> tuple[QueryGallery, Relevance, Tensor]:
    """Rows to compare, who is relevant to whom, and the labels as int64."""
    if (gallery is None) != (gallery_labels is None):
        raise ValueError("gallery and gallery_labels belong together: give both or none")
    comparison = prepare_rows(
        as_rows(embeddings, device), None if gallery is None else as_rows(gallery, device), distance
    )
    if comparison.queries.shape[0] == 0:
        raise ValueError("there are no embeddings to evaluate")
    codes = encode(labels, gallery_labels, comparison.gallery.device)
    rows = [comparison.queries.shape[0], comparison.size]
    for name, count, code in zip(("embeddings", "gallery"), rows, codes, strict=False):
        if code.shape[0] != count:
            raise ValueError(f"{count} rows of {name} but {code.shape[0]} labels: they must belong together row by row")
    return comparison, relevance(codes[0], codes[1] if len(codes) > 1 else None), codes[0]
