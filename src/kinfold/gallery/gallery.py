"""`Gallery`: embeddings with labels, ids and paths in a folder, to search and to extend."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from kinfold.calibration.stored import select_unseen
from kinfold.data.items import Array
from kinfold.embedding.encoders import EmbeddingRun, fingerprint_run
from kinfold.embedding.kept import embed_items
from kinfold.gallery import kept_index, probes
from kinfold.gallery.chunk_list import append_items, drop_items
from kinfold.gallery.folder import GalleryFolder
from kinfold.gallery.inputs import check_distance, check_unique, get_dim, to_strings
from kinfold.gallery.item_table import ItemTable
from kinfold.gallery.open_set import Identification, Identifications, OpenSetThreshold, draw_probes
from kinfold.gallery.reader import GalleryReader
from kinfold.html_table import render_html_table
from kinfold.optional import import_optional
from kinfold.seeding import derive_generator

Existing = Literal["raise", "skip", "replace"]


class Gallery(GalleryReader):
    """Unit embeddings with labels, ids and paths, in a folder on disk.

    Embeddings are kept as safetensors files, and labels, ids and paths as Parquet files, in chunks. Files are mapped
    into memory when the gallery is opened, and their sha256 is checked when they are first used. Every change is
    complete or not made at all, and one process at a time writes. An open gallery shows what was there when it was
    opened; `refresh` shows what others have written since.

    The gallery holds the fingerprint of the model and transform that made its embeddings. A run with another
    fingerprint is refused.

    `Gallery.create` makes one, `Gallery.open` opens one.

    Args:
        folder: The folder of an existing gallery.

    Raises:
        ValueError: There is no gallery, or a file is missing or damaged.
    """

    @staticmethod
    def create(
        folder: Path | str,
        dim: int | None = None,
        *,
        run: EmbeddingRun | None = None,
        fingerprint: str | None = None,
    ) -> "Gallery":
        """Make an empty gallery.

        Args:
            folder: A folder that is missing or empty.
            dim: The length of an embedding; that of the run where one is given.
            run: The run that embeds.
            fingerprint: What stands for the model that embeds, where there is no run: any string. None accepts
                embeddings of every model, and nothing is checked.

        Raises:
            ValueError: The folder is not empty, or the run does not compare by cosine.
        """
        model: dict[str, Any] = {}
        if run is not None:
            if dim is not None or fingerprint is not None:
                raise ValueError("dim and fingerprint are those of the run: leave them out")
            check_distance(run)
            fingerprint, dim = fingerprint_run(run), get_dim(run)
            model = {"run": run.folder.resolve().name}
        if dim is None:
            raise ValueError("give the length of an embedding, dim=, or the run that embeds, run=")
        if dim < 1:
            raise ValueError(f"dim must be at least 1, got {dim}")
        GalleryFolder(folder).create(dim, fingerprint, model)
        return Gallery(folder)

    @staticmethod
    def open(folder: Path | str) -> "Gallery":
        """Open a gallery; the same as `Gallery(folder)`."""
        return Gallery(folder)

    def __repr__(self) -> str:
        return f"<Gallery {str(self.folder)!r}: {len(self):,} items of {self.dim} numbers>"

    def _repr_html_(self) -> str:
        rows = [*self._count_labels().items()]
        return render_html_table(repr(self)[1:-1], ["class", "items"], rows[:50])

    def table(self) -> str:
        """Return one line for each class with the number of its items, the largest class first."""
        lines = [f"{count:7,}  {label}" for label, count in self._count_labels().items()]
        return "\n".join(["  items  class", *lines])

    def plot(self) -> Any:
        """Draw the numbers of items of the classes, the largest first.

        Returns:
            A matplotlib figure.

        Raises:
            ImportError: matplotlib is not installed.
        """
        figure_module = import_optional("matplotlib.figure", "matplotlib", "report", "a plot")
        figure = figure_module.Figure(figsize=(7, 4), layout="constrained")
        axes = figure.subplots()
        axes.plot([*self._count_labels().values()])
        axes.set(xlabel="class, largest first", ylabel="items", ylim=(0, None))
        return figure

    def _count_labels(self) -> dict[str, int]:
        return dict(Counter(self.labels).most_common())

    def add(
        self,
        embeddings: Any,
        labels: Sequence[Any] | Array | Tensor,
        ids: Sequence[str] | None = None,
        paths: Sequence[str | Path] | None = None,
        *,
        run: EmbeddingRun | None = None,
        fingerprint: str | None = None,
        existing: Existing = "raise",
    ) -> int:
        """Add items: all of them, or none where something is wrong or the process is killed.

        Args:
            embeddings: (N, dim). With `run`: whatever `Run.embed` takes, such as paths of images.
            labels: The class of each item; an empty string for an item without one.
            ids: A string for each item that no other item of the gallery has. Left out: the paths where there are
                some, else numbers.
            paths: The file of each item.
            run: The run that embeds.
            fingerprint: The fingerprint of the model that made the embeddings, where there is no run.
            existing: What to do with an id that the gallery has already: "raise" an error, "skip" the new item, or
                "replace" the old one.

        Returns:
            The number of items that were added or replaced.

        Raises:
            ValueError: The embeddings are of another model, or of another length, or an id is there twice.
            FolderLockedError: Another process writes to the gallery.
        """
        if existing not in ("raise", "skip", "replace"):
            raise ValueError(f"existing must be 'raise', 'skip' or 'replace', got {existing!r}")
        rows = self._prepare(embeddings, run, fingerprint)
        names = to_strings(labels, len(rows), "labels")
        files = [""] * len(rows) if paths is None else to_strings(paths, len(rows), "paths")
        item_ids = files if ids is None and paths is not None else ids
        with self._files.edit() as manifest:
            self._show(manifest)
            first_key = manifest["next_key"]
            keys = np.arange(first_key, first_key + len(rows), dtype=np.int64)
            unique = [str(key) for key in keys.tolist()] if item_ids is None else to_strings(item_ids, len(rows), "ids")
            check_unique(unique)
            table = ItemTable.from_lists(keys, unique, names, files)
            known = table.find("ids", self._find_known(unique))
            if known.any():
                if existing == "raise":
                    raise ValueError(
                        f"{int(known.sum()):,} of these ids are in {self.folder} already, such as "
                        f"{unique[int(known.argmax())]!r}: use other ids, or existing='skip' or 'replace'"
                    )
                if existing == "skip":
                    kept = np.flatnonzero(~known)
                    table, rows = table.take(kept), rows[torch.from_numpy(kept)]
                else:
                    drop_items(self._files, manifest, "ids", unique)
            manifest["next_key"] = first_key + len(names)
            append_items(self._files, manifest, rows, table)
            kept_index.follow(self._files, manifest)
        self.refresh()
        return len(table)

    def remove(self, ids: Sequence[str] | None = None, labels: Sequence[str] | None = None) -> int:
        """Remove items by their ids, or all items of some classes. The chunks that hold them are written again.

        An index (`build_index`) cannot forget single items: it leaves them out of every result, and is built again once
        they are a tenth of it.

        Args:
            ids: Ids of items.
            labels: Classes.

        Returns:
            The number of items that were removed.

        Raises:
            ValueError: Neither or both are given, or an id or label is not in the gallery; then nothing is removed.
            FolderLockedError: Another process writes to the gallery.
        """
        if (ids is None) == (labels is None):
            raise ValueError("give the ids or the labels of what to remove")
        column, values = ("ids", ids) if ids is not None else ("labels", labels)
        wanted = [*map(str, values or ())]
        with self._files.edit() as manifest:
            self._show(manifest)
            present = {*getattr(self.items, column).take(np.flatnonzero(self.items.find(column, wanted))).to_pylist()}
            missing = [value for value in wanted if value not in present]
            if missing:
                raise ValueError(f"{self.folder} has no item with the {column[:-1]} {missing[0]!r}")
            removed = drop_items(self._files, manifest, column, wanted)
            kept_index.follow(self._files, manifest)
        self.refresh()
        return removed

    def build_index(self, library: kept_index.Library = "faiss") -> None:
        """Build a graph index (HNSW) of all items for `search(approximate=True)`, and keep it in the folder.

        `add` and `remove` keep it up to date. Items that were added wait until they are a tenth of the index (and more
        than 4,096), and are searched exactly until then. Items that were removed are never returned. Their vectors stay
        in the file of the index until they are a tenth of it, when it is built again: call this method to be rid of
        them at once.

        Args:
            library: "faiss" or "usearch", which must be installed.

        Raises:
            ImportError: The library is not installed.
            FolderLockedError: Another process writes to the gallery.
        """
        with self._files.edit() as manifest:
            kept_index.build(self._files, manifest, library)
        self.refresh()

    def drop_index(self) -> None:
        """Delete the index; approximate search needs a new one.

        Raises:
            FolderLockedError: Another process writes to the gallery.
        """
        with self._files.edit() as manifest:
            manifest["index"] = None
        self.refresh()

    def calibrate(
        self, run: EmbeddingRun, far: float = 1e-2, *, split: str | None = None, seed: int = 0
    ) -> OpenSetThreshold:
        """Keep probes of unseen classes of a run, so that `identify` can answer "none of these" at a stated rate.

        Args:
            run: The run that made the gallery.
            far: The rate at which items of unknown classes may be given a label.
            split: "test" or "validation"; None takes the test classes where they may be looked at.
            seed: Draws up to 20 items of each class.

        Returns:
            The threshold for the gallery as it is.

        Raises:
            ValueError: The run did not make the gallery, or all of its unseen classes are in the gallery.
        """
        check_distance(run)
        self.check_fingerprint(fingerprint_run(run))
        name, dataset, selected = select_unseen(run, split)
        rows = draw_probes(dataset.labels, derive_generator(seed, 24))
        mask = np.zeros(len(dataset), dtype=bool)
        mask[rows.numpy()] = True
        labels = [dataset.classes[number] for number in dataset.labels[rows].tolist()]
        origin = f"{name} classes of {run.folder.resolve().name}"
        return self.set_probes(
            embed_items(run, dataset.where(mask)), labels, far, origin=origin, may_guarantee=not selected
        )

    def set_probes(
        self,
        embeddings: Any,
        labels: Sequence[Any] | Array | Tensor,
        far: float,
        *,
        origin: str = "",
        may_guarantee: bool = True,
    ) -> OpenSetThreshold:
        """Keep items of unknown classes, which decide what `identify` accepts; see `calibrate`.

        Args:
            embeddings: (P, dim), of classes that the model has not seen.
            labels: Their classes. Those that are in the gallery, now or later, are left out.
            far: The rate at which items of unknown classes may be given a label.
            origin: Where they come from, for `info`.
            may_guarantee: False for classes on which the model was selected: the threshold is an estimate then.

        Raises:
            ValueError: The rate is not between 0 and 1, or all classes are in the gallery.
        """
        if not 0.0 < far < 1.0:
            raise ValueError(f"far must be above 0 and below 1, got {far}")
        rows = self._prepare(embeddings, None, None)
        table = ItemTable.from_lists(
            np.arange(len(rows)),
            [str(i) for i in range(len(rows))],
            to_strings(labels, len(rows), "labels"),
            [""] * len(rows),
        )
        with self._files.edit() as manifest:
            self._show(manifest)
            probes.keep(
                self._files, manifest, rows, table, {"far": far, "origin": origin, "may_guarantee": may_guarantee}
            )
            self._show(manifest)
            self.open_set_threshold()  # raises before anything is kept
        self.refresh()
        return self.open_set_threshold()

    def identify(
        self, queries: Any, *, run: EmbeddingRun | None = None, fingerprint: str | None = None
    ) -> Identifications:
        """Name each query by its nearest item, or answer "none of these".

        Args:
            queries: (Q, dim), or (dim,) for one query. With `run`: whatever `Run.embed` takes.
            run: The run that embeds.
            fingerprint: The fingerprint of the model that made the embeddings, where there is no run.

        Returns:
            Labels with probabilities, and the threshold with the rate that it states.

        Raises:
            ValueError: The gallery is empty or was not calibrated, or the queries do not fit it.
        """
        threshold = self.open_set_threshold()
        answers = []
        for (match,) in self.search(queries, 1, run=run, fingerprint=fingerprint):
            probability = float(threshold.probability(match.similarity))
            label = match.label if match.similarity >= threshold.threshold else None
            answers.append(Identification(label, probability, match.similarity, match.label, match.id))
        return Identifications(answers, threshold)

    def _find_known(self, ids: list[str]) -> list[str]:
        """Return those ids that the gallery has."""
        known: list[str] = []
        for chunk in self._chunks:
            table = chunk.read_items()
            known += table.ids.take(np.flatnonzero(table.find("ids", ids))).to_pylist()
        return known
