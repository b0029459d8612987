"""Exact nearest neighbors of a query in the embedding space of a run.

    index = SearchIndex.open(run, "photos")
    for neighbor in index.search("wren.jpg", k=5).neighbors:
        print(neighbor.file, neighbor.label)

Embeddings of images are kept in the folder of the run.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kinfold import data, registry
from kinfold.data.column_files import read_npy
from kinfold.data.dataset import SPLITS
from kinfold.data.image_folder import list_images
from kinfold.data.image_table import is_image_table
from kinfold.data.items import Array
from kinfold.embedding.encoders import EmbeddingRun
from kinfold.embedding.kept import embed_items, embed_unkept
from kinfold.files.paths import describe_missing
from kinfold.html_table import render_html_table
from kinfold.metrics import neighbors
from kinfold.optional import import_optional

Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class SearchItem:
    """An item of a gallery, or a query.

    Attributes:
        content: An image or an array.
        label: Its class, where it is known.
        index: Its position in the gallery; None for a query from elsewhere.
        file: The image file that it comes from.
    """

    content: Any
    label: str | None = None
    index: int | None = None
    file: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return position, class and file for JSON."""
        return {"index": self.index, "class": self.label, "file": self.file}

    def has_same_class(self, other: "SearchItem") -> bool | None:
        """Return whether two items have the same class; None where a class is not known."""
        return None if self.label is None or other.label is None else self.label == other.label


@dataclass(frozen=True, repr=False)
class SearchResult:
    """The nearest items of a query, the closest first.

    Attributes:
        query: What was searched for.
        neighbors: The items.
        scores: Their similarities; distances where the run compares by Euclidean or hyperbolic distance.
        measure: "similarity" or "distance".
    """

    query: SearchItem
    neighbors: list[SearchItem]
    scores: list[float]
    measure: str

    def __repr__(self) -> str:
        first = ", ".join(
            f"{item.label or item.file or item.index} {score:.3f}"
            for item, score in zip(self.neighbors[:5], self.scores, strict=False)
        )
        return f"<SearchResult: {len(self.neighbors)} neighbors by {self.measure}: {first}>"

    def table(self) -> str:
        """Return one line for each neighbor: rank, score, class, position, file."""
        lines = [f"rank  {self.measure:>10}  class  index  file"]
        for row in self.rows():
            values = (row["class"] or "", row["index"], row["file"] or "")
            lines.append(f"{row['rank']:4}  {row[self.measure]:10.4f}  " + "  ".join(map(str, values)))
        return "\n".join(lines)

    def plot(self) -> Any:
        """Draw the query and its neighbors: their images, or bars of their scores where they are features.

        Returns:
            A matplotlib figure.

        Raises:
            ImportError: matplotlib is not installed.
        """
        figure_module = import_optional("matplotlib.figure", "matplotlib", "report", "a plot")
        items = [self.query, *self.neighbors]
        names = ["query", *(f"{item.label or item.index}\n{score:.3f}" for item, score in self._pairs())]
        if any(getattr(item.content, "ndim", 2) == 1 for item in items):
            figure = figure_module.Figure(figsize=(6, 0.8 + 0.3 * len(self.neighbors)), layout="constrained")
            axes = figure.subplots()
            axes.barh([f"{rank}: {name}" for rank, name in enumerate(names[1:], start=1)], self.scores)
            axes.invert_yaxis()
            axes.set_xlabel(self.measure)
            return figure
        figure = figure_module.Figure(figsize=(1.4 * len(items), 1.9), layout="constrained")
        for axes, item, name in zip(figure.subplots(1, len(items), squeeze=False)[0], items, names, strict=True):
            axes.imshow(np.asarray(data.decode(item.content)))
            axes.set_title(name, fontsize=8)
            axes.axis("off")
        return figure

    def _repr_html_(self) -> str:
        rows = [[row[name] for name in ("rank", self.measure, "class", "index", "file")] for row in self.rows()]
        return render_html_table(repr(self)[1:-1], ["rank", self.measure, "class", "index", "file"], rows)

    def _pairs(self) -> list[tuple[SearchItem, float]]:
        return [*zip(self.neighbors, self.scores, strict=True)]

    def rows(self) -> list[dict[str, Any]]:
        """Return one dictionary per neighbor: rank, score, position, class, file and whether the class is the same."""
        return [
            {"rank": rank, self.measure: score, **item.to_dict(), "same_class": self.query.has_same_class(item)}
            for rank, (score, item) in enumerate(zip(self.scores, self.neighbors, strict=True), start=1)
        ]


@dataclass(frozen=True)
class SearchIndex:
    """The items of one or several datasets with their embeddings.

    Args:
        run: The run that embeds.
        name: What is searched, for messages.
        datasets: The datasets, one after the other.
        embeddings: Those of all items, (N, dim).
    """

    run: EmbeddingRun
    name: str
    datasets: list[data.Dataset]
    embeddings: Tensor

    @staticmethod
    def open(
        run: EmbeddingRun,
        gallery: str | Path | None = None,
        split: str | None = None,
        progress: Progress | None = None,
        report: Callable[[str], object] | None = None,
    ) -> "SearchIndex":
        """Embed a gallery, or load the embeddings that the run keeps.

        Args:
            run: A run, whose network embeds.
            gallery: A folder of images, a table, a feature file or the name of a dataset; None is the data of the run.
            split: "train", "validation", "test" or "all". None is the test split of the run where it may be looked at,
                else everything.
            progress: Called with a stage and the share that is finished.
            report: Called with a message where embeddings cannot be kept.

        Raises:
            ValueError: There is no such gallery or split, or the run embeds items of another kind.
        """
        if split is not None and split != "all" and split not in SPLITS:
            near = registry.suggest(split, (*SPLITS, "all"))
            raise ValueError(f"unknown split {split!r}{near}; it is {', '.join(SPLITS)} or all")
        if gallery is None:
            name, datasets = _select_run_data(run, split)
        else:
            name, datasets = _read_gallery(str(gallery), split or "all")
        rows = [embed_items(run, dataset, progress, report) for dataset in datasets]
        return SearchIndex(run, name, datasets, torch.cat(rows))

    def __len__(self) -> int:
        return len(self.embeddings)

    def get_item(self, index: int) -> SearchItem:
        """Return the item at a position, counted from 0 over all datasets.

        Raises:
            ValueError: There is no such item.
        """
        offset = index
        for dataset in self.datasets:
            if offset < len(dataset):
                content = dataset.items[offset]
                file = str(content.path) if isinstance(content, data.ImageFile) else None
                return SearchItem(content, dataset.classes[int(dataset.labels[offset])] or None, index, file)
            offset -= len(dataset)
        raise ValueError(f"there is no item {index} in {self.name}: it has {len(self):,}, counted from 0")

    def find_file(self, path: Path) -> int | None:
        """Return the position of an image file; None where it is not in the gallery."""
        start = 0
        for dataset in self.datasets:
            items = dataset.items
            if isinstance(items, data.ImageFiles) and path.is_relative_to(items.root.resolve()):
                positions = (items.paths == path.relative_to(items.root.resolve()).as_posix()).nonzero()[0]
                # an image cut to several boxes is several items, none of which is the whole image
                if len(positions) == 1 and items[int(positions[0])].box is None:
                    return start + int(positions[0])
            start += len(dataset)
        return None

    def search(self, query: Any, k: int = 10) -> SearchResult:
        """Find the nearest items of a query.

        Args:
            query: A position in the gallery (17 or "#17"), an image file, or an .npy file. For a run on features, the
                .npy file holds one row of them; for a run on images, an embedding or the uint8 pixels of an image. Or
                a Pillow image or an array, as `Run.embed` takes it.
            k: How many neighbors. An item of the gallery is not its own neighbor.

        Raises:
            ValueError: There is no such query, or it does not fit the run.
        """
        if k < 1:
            raise ValueError(f"k must be at least 1, got {k}")
        if isinstance(query, str | Path | int):
            item, embedding = self._embed_query(str(query))
        else:
            item, embedding = SearchItem(query), self.run.embed(query)
            if len(embedding) != 1:
                raise ValueError(f"a search takes one query, got {len(embedding)}: call it for each of them")
        exclude = torch.tensor([-1 if item.index is None else item.index])
        scores, indices = neighbors(embedding, self.embeddings, k, self.run.distance, exclude=exclude)
        measure = "similarity" if self.run.distance in ("cosine", "dot") else "distance"
        return SearchResult(item, [self.get_item(index) for index in indices[0].tolist()], scores[0].tolist(), measure)

    def _embed_query(self, query: str) -> tuple[SearchItem, Tensor]:
        """Return the query with its embedding (1, dim)."""
        path = Path(query)
        if re.fullmatch(r"#[0-9]+", query) or (re.fullmatch(r"[0-9]+", query) and not path.exists()):
            return self._take_item(int(query.removeprefix("#")))
        if not path.is_file():
            missing = f"{query} is a folder" if path.is_dir() else describe_missing(query)
            raise ValueError(f"{missing}; a query is an image, an .npy file, or '#17' for an item")
        if path.suffix.lower() == ".npy":
            return self._embed_array(path)
        if self.run.pipeline is None:
            raise ValueError(f"the run {self.run.folder} embeds features, not images; use an .npy file or '#17'")
        index = self.find_file(path.resolve())
        if index is not None:
            return self._take_item(index)
        dataset = data.create_dataset("query", data.ImageFiles(path.parent, [path.name]), [""], ["test"])
        return SearchItem(dataset.items[0], file=query), embed_unkept(self.run, dataset)

    def _take_item(self, index: int) -> tuple[SearchItem, Tensor]:
        return self.get_item(index), self.embeddings[index : index + 1]

    def _embed_array(self, path: Path) -> tuple[SearchItem, Tensor]:
        array = np.array(read_npy(path))
        on_images = self.run.pipeline is not None
        if on_images and array.dtype == np.uint8 and array.ndim in (2, 3):  # pixels
            return SearchItem(array, file=str(path)), self._embed_row("query", array)
        row = array[0] if array.ndim == 2 and len(array) == 1 else array
        if row.ndim != 1 or row.dtype.kind not in "fiu" or not np.isfinite(row).all():
            raise ValueError(f"{path} must hold one row of finite numbers; it holds {array.dtype} {array.shape}")
        row = row.astype(np.float32)
        if not on_images:
            return SearchItem(row, file=str(path)), self._embed_row(str(path), row)
        dim = self.embeddings.shape[1]
        if len(row) != dim:
            raise ValueError(f"{path} has {len(row)} numbers, but an embedding of this run has {dim}")
        return SearchItem(row, file=str(path)), torch.from_numpy(row)[None]

    def _embed_row(self, name: str, row: Array) -> Tensor:
        return embed_unkept(self.run, data.create_dataset(name, data.Rows(row[None]), [""], ["test"]))


def _select_run_data(run: EmbeddingRun, split: str | None) -> tuple[str, list[data.Dataset]]:
    """Return a name and the datasets of a run."""
    visible = run.list_visible_splits()
    split = split or ("test" if "test" in visible else "all")
    if split == "all":
        return f"the data of {run.folder}", [*visible.values()]
    return f"the {split} split of {run.folder}", [run.data(split)]


def _read_gallery(gallery: str, split: str) -> tuple[str, list[data.Dataset]]:
    """Return a name and the dataset of a gallery."""
    dataset = load_items(gallery)
    if split == "all":
        return gallery, [dataset]
    return f"{gallery} {split}", [dataset.subset(split)]


def load_items(gallery: str) -> data.Dataset:
    """Load a folder of images, with or without classes, a table, a feature file, or a dataset by its name.

    Raises:
        ValueError: There is no such thing.
    """
    path = Path(gallery)
    if path.is_dir():
        images = list_images(path)
        if images and not any("/" in image for image in images):  # images without classes can be searched too
            files = data.ImageFiles(path, images)
            return data.create_dataset(path.name, files, [""] * len(images), ["test"] * len(images))
        return data.load("folder", path)
    if path.is_file():
        return data.load("table" if is_image_table(path) else "features", path)
    if gallery in registry.names("datasets"):
        return data.load(gallery)
    near = registry.suggest(gallery, registry.names("datasets"))
    what = "folder, file or dataset"
    raise ValueError(f"there is no {what} {gallery}{near}" if near else describe_missing(gallery, what))
