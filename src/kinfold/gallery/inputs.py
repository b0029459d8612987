"""Checks of what is put into a gallery."""

from typing import Any

import numpy as np
from torch import Tensor

from kinfold.embedding.encoders import EmbeddingRun
from kinfold.models.concatenated import ConcatenatedEmbedder


def check_distance(run: EmbeddingRun) -> None:
    """Raise a ValueError where a run does not compare by cosine."""
    if run.distance != "cosine":
        raise ValueError(f"a gallery compares by cosine, but the run {run.folder} by {run.distance} distance")


def get_dim(run: EmbeddingRun) -> int:
    """Return the length of an embedding of a run, or of a repeat with several models."""
    network: Any = run.model()
    members: list[Any] = [*network.members] if isinstance(network, ConcatenatedEmbedder) else [network]
    return sum([int(member.dim) for member in members])


def to_strings(values: Any, count: int, what: str) -> list[str]:
    """Return one string for each item."""
    if isinstance(values, str):
        raise ValueError(f"{what} must be a list with one entry for each item, got the string {values!r}")
    plain = values.tolist() if isinstance(values, Tensor | np.ndarray) else [*values]
    if len(plain) != count:
        raise ValueError(f"{count:,} embeddings and {len(plain):,} {what}: give one for each")
    return [str(value) for value in plain]


def check_unique(ids: list[str]) -> None:
    """Raise a ValueError that names the first id that is there twice."""
    names: set[str] = set()
    for name in ids:
        if name in names:
            raise ValueError(f"the id {name!r} is given twice: ids must differ")
        names.add(name)
