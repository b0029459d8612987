"""Add the items of a dataset to a gallery, in parts, so that an interrupted process can continue."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from kinfold.data.column_files import read_columns
from kinfold.data.dataset import Dataset
from kinfold.data.fingerprint import compute_fingerprint
from kinfold.data.items import ImageFile
from kinfold.data.stored_embeddings import StoredEmbeddings, read_stored_embeddings
from kinfold.embedding.encoders import EmbeddingRun, fingerprint_run
from kinfold.embedding.kept import KeptEmbeddings, embed_unkept
from kinfold.gallery.gallery import Existing, Gallery
from kinfold.gallery.inputs import check_distance

_ITEMS_PER_PART = 2048
_HINTS = {
    "embeddings": "call it embeddings",
    "labels": "call it labels, or give the class of all rows, --label wren",
}


def add_dataset(
    gallery: Gallery,
    dataset: Dataset,
    run: EmbeddingRun,
    *,
    label: str | None = None,
    existing: Existing = "skip",
    progress: Callable[[str, float], None] | None = None,
) -> int:
    """Embed the items of a dataset with a run and add them, part by part.

    The id of an image is its path, and that of another item the fingerprint of the dataset with its position. So the
    same call after an interruption continues and adds nothing twice.

    Args:
        gallery: The gallery.
        dataset: The items.
        run: The run that made the gallery.
        label: The class of all items; None takes those of the dataset.
        existing: What to do with ids that are there already: "skip", "replace" or "raise".
        progress: Called with a stage and the share that is finished.

    Returns:
        The number of items that were added or replaced.

    Raises:
        ValueError: The run did not make the gallery, or an image cannot be read.
    """
    ids, paths = name_items(dataset)
    labels = [label] * len(dataset) if label is not None else [dataset.classes[i] for i in dataset.labels.tolist()]
    waiting = np.arange(len(dataset))
    if existing == "skip" and len(gallery):
        waiting = np.flatnonzero(~np.isin(np.array(ids), np.array(gallery.ids)))
    check_distance(run)
    fingerprint = fingerprint_run(run)
    gallery.check_fingerprint(fingerprint)
    kept = None if run.pipeline is None else KeptEmbeddings(run)
    added = 0
    for start in range(0, len(waiting), _ITEMS_PER_PART):
        part = waiting[start : start + _ITEMS_PER_PART]
        mask = np.zeros(len(dataset), dtype=bool)
        mask[part] = True
        rows = part.tolist()
        items = dataset.where(mask)
        # the gallery keeps them; the run need not
        embeddings = embed_unkept(run, items) if kept is None else kept.embed(items, keep=False)
        added += gallery.add(
            embeddings,
            [labels[row] for row in rows],
            [ids[row] for row in rows],
            [paths[row] for row in rows],
            fingerprint=fingerprint,
            existing=existing,
        )
        if progress is not None:
            progress("embed", (start + len(part)) / len(waiting))
    return added


def add_feature_file(
    gallery: Gallery, path: Path | str, *, label: str | None = None, existing: Existing = "skip"
) -> int:
    """Add the rows of an .npz or Parquet file, which are embeddings of the model of the gallery.

    Files that `kinfold embed` wrote hold the fingerprint of their model, which is checked.

    Args:
        gallery: The gallery.
        path: The file, with arrays of embeddings and labels.
        label: The class of all rows; None takes those of the file.
        existing: What to do with ids that are there already: "skip", "replace" or "raise".

    Returns:
        The number of rows that were added or replaced.

    Raises:
        ValueError: A column is missing, or the embeddings are of another model.
    """
    stored = read_rows(path, label)
    columns = read_columns(path).values
    count, files = len(stored.labels), columns.get("path")
    paths = None if files is None or files.shape != (count,) else files.astype(str).tolist()
    ids = paths if paths is not None and len({*paths}) == count else [f"{Path(path).name}#{i}" for i in range(count)]
    fingerprint = read_fingerprint(path)
    return gallery.add(stored.embeddings, stored.labels, ids, paths, fingerprint=fingerprint, existing=existing)


def read_rows(path: Path | str, label: str | None = None) -> StoredEmbeddings:
    """Read the embeddings and labels of a file, or give all of them one label.

    Raises:
        ValueError: A column is missing.
    """
    return read_stored_embeddings(path, label=label, hints=_HINTS)


def read_fingerprint(path: Path | str) -> str | None:
    """Return the fingerprint of the model that made the embeddings of a file; None where the file does not say."""
    stored = read_columns(path).values.get("fingerprint")
    return str(stored) if stored is not None and stored.ndim == 0 else None


def name_items(dataset: Dataset) -> tuple[list[str], list[str]]:
    """Return an id and a path for each item; the path is empty for what is no file."""
    items = dataset.items
    first = items[0] if len(dataset) else None
    if not isinstance(first, ImageFile):
        digest = compute_fingerprint(dataset, full=True)[:12]
        return [f"{digest}:{row}" for row in range(len(dataset))], [""] * len(dataset)
    files = [items[row] for row in range(len(dataset))]
    paths = [str(file.path.resolve()) for file in files]
    boxes = ["" if file.box is None else "#" + ",".join(map(str, file.box)) for file in files]
    return [path + box for path, box in zip(paths, boxes, strict=True)], paths
