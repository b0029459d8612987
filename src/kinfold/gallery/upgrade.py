"""A linear map from the embeddings of a new model to those of an old one, to search an old gallery meanwhile."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kinfold.embedding.encoders import EmbeddingRun, fingerprint_run
from kinfold.embedding.kept import embed_items
from kinfold.files.state import read_state, write_state
from kinfold.metrics import evaluate, neighbors
from kinfold.metrics._ranking.rows import normalize_rows

_RIDGES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
_HELD_OUT = 5  # every fifth item chooses the ridge


@dataclass(frozen=True)
class SpaceMap:
    """A map between two embedding spaces: y = unit(x) W + b.

    Args:
        matrix: (new dim, old dim).
        offset: (old dim,).
        source: The fingerprint of the new model.
        target: The fingerprint of the old model, that of the gallery.
        recall: Recall@1 on held-out classes: "old", "new" (each model by itself) and "mapped" (new queries, mapped,
            among old items).
    """

    matrix: Tensor
    offset: Tensor
    source: str
    target: str
    recall: dict[str, float]

    def __call__(self, embeddings: Tensor) -> Tensor:
        """Map embeddings of the new model (N, new dim) to unit rows (N, old dim)."""
        return normalize_rows(normalize_rows(embeddings.float()) @ self.matrix + self.offset)

    def save(self, path: Path | str) -> None:
        """Write the map to a safetensors file with its checksum."""
        write_state(Path(path), {**vars(self)})

    @staticmethod
    def load(path: Path | str) -> "SpaceMap":
        """Read what `save` wrote.

        Raises:
            ValueError: The file is damaged, or is no map.
        """
        state = read_state(Path(path))
        if not isinstance(state, dict) or set(state) != {"matrix", "offset", "source", "target", "recall"}:
            raise ValueError(f"{path} does not hold a map between two models: `kinfold upgrade` writes one")
        return SpaceMap(**state)


def fit_linear_map(new: Tensor, old: Tensor) -> tuple[Tensor, Tensor]:
    """Fit ridge regression from new to old unit embeddings of the same items.

    The ridge is chosen by every fifth item.

    Args:
        new: (N, new dim).
        old: (N, old dim).

    Returns:
        Matrix (new dim, old dim) and offset (old dim,).
    """
    new, old = normalize_rows(new.double()), normalize_rows(old.double())
    held_out = torch.arange(len(new)) % _HELD_OUT == 0
    errors = {}
    for ridge in _RIDGES:
        matrix, offset = _solve(new[~held_out], old[~held_out], ridge)
        errors[ridge] = float((new[held_out] @ matrix + offset - old[held_out]).square().sum(dim=1).mean())
    matrix, offset = _solve(new, old, min(errors, key=lambda ridge: errors[ridge]))
    return matrix.float(), offset.float()


def fit_upgrade(old: EmbeddingRun, new: EmbeddingRun, progress: Callable[[str, float], None] | None = None) -> SpaceMap:
    """Fit a map from a new run to an old one on the training items of the old run, and measure it.

    Args:
        old: The run that made the gallery.
        new: The run that embeds from now on.
        progress: Called with a stage and the share that is finished.

    Returns:
        The map, with recall@1 on classes that neither the map nor the old run was fitted on.

    Raises:
        ValueError: A run does not compare by cosine, or the old run has no unseen classes to measure on.
    """
    for run in (old, new):
        if run.distance != "cosine":
            raise ValueError(f"the run {run.folder} compares by {run.distance} distance; maps are between cosines")
    visible = old.list_visible_splits()
    name = next((name for name in ("test", "validation") if name in visible), None)
    if name is None:
        raise ValueError(f"the run {old.folder} has no test or validation classes to measure a map on")
    train, unseen = visible["train"], visible[name]
    matrix, offset = fit_linear_map(*(embed_items(run, train, progress) for run in (new, old)))
    fitted = SpaceMap(matrix, offset, fingerprint_run(new), fingerprint_run(old), {})
    old_rows, new_rows = (embed_items(run, unseen, progress) for run in (old, new))
    recall = measure_map(fitted(new_rows), old_rows, unseen.labels)
    recalls = {
        key: evaluate(rows, unseen.labels, metrics=["recall@1"])["recall@1"]
        for key, rows in (("old", old_rows), ("new", new_rows))
    }
    return SpaceMap(matrix, offset, fitted.source, fitted.target, {**recalls, "mapped": recall})


def measure_map(mapped: Tensor, old: Tensor, labels: Tensor) -> float:
    """Return the share of mapped queries whose nearest old item, without the item itself, is of their class."""
    _, nearest = neighbors(mapped, old, k=1, exclude=torch.arange(len(old)))
    counted = torch.bincount(labels)[labels] > 1
    return float((labels[nearest[:, 0]] == labels)[counted].double().mean())


def _solve(new: Tensor, old: Tensor, ridge: float) -> tuple[Tensor, Tensor]:
    mean_new, mean_old = new.mean(dim=0), old.mean(dim=0)
    x, y = new - mean_new, old - mean_old
    gram = x.T @ x
    level = ridge * gram.diagonal().mean().clamp(min=1e-12)
    matrix: Any = torch.linalg.solve(gram + level * torch.eye(len(gram), dtype=gram.dtype), x.T @ y)
    return matrix, mean_old - mean_new @ matrix
