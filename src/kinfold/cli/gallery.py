"""What `kinfold search` searches in: items with their embeddings, which a run keeps for the next time."""

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from kinfold import data, registry
from kinfold.cli.terminal import echo
from kinfold.data.dataset import SPLITS
from kinfold.data.fingerprint import compute_fingerprint
from kinfold.data.image_folder import list_images
from kinfold.data.image_table import is_image_table
from kinfold.files.paths import check_path, make_folder
from kinfold.files.state import read_state, write_state

if TYPE_CHECKING:
    from kinfold.training import Run

Progress = Callable[[str, float], None] | None


@dataclass(frozen=True)
class SearchItem:
    """A thing of a gallery, or a query: an ImageFile or an array, and what else is known of it."""

    thing: Any
    label: str | None = None
    index: int | None = None
    file: str | None = None

    def described(self) -> dict[str, Any]:
        return {"index": self.index, "class": self.label, "file": self.file}


@dataclass(frozen=True)
class SearchIndex:
    """Data sets one after the other, and the embeddings of all their items (N, dim)."""

    name: str
    parts: list[data.Dataset]
    embeddings: Tensor

    def item(self, index: int) -> SearchItem:
        """The item at a position, counted from 0 over all parts."""
        place = index
        for part in self.parts:
            if place < len(part):
                thing = part.items[place]
                file = str(thing.path) if isinstance(thing, data.ImageFile) else None
                return SearchItem(thing, part.classes[int(part.labels[place])] or None, index, file)
            place -= len(part)
        raise ValueError(f"there is no item {index} in {self.name}: it has {len(self.embeddings):,}, counted from 0")

    def find(self, path: Path) -> int | None:
        """The position of an image file that is one of these, so that it need not be its own neighbour."""
        start = 0
        for part in self.parts:
            if isinstance(part.items, data.ImageFiles) and path.is_relative_to(part.items.root.resolve()):
                inside = path.relative_to(part.items.root.resolve()).as_posix()
                places = (part.items.paths == inside).nonzero()[0]
                # an image cut to several boxes is several items, none of which is the whole image
                if len(places) == 1 and part.items[int(places[0])].box is None:
                    return start + int(places[0])
            start += len(part)
        return None


def open_search_index(run: "Run", given: str | None, split: str | None, progress: Progress = None) -> SearchIndex:
    """The split of the run's own data, or of the folder, file or data set given."""
    if split is not None and split != "all" and split not in SPLITS:
        near = registry.suggest(split, (*SPLITS, "all"))
        raise ValueError(f"unknown split {split!r}{near}; it is {', '.join(SPLITS)} or all")
    if given is None:
        present = run.list_visible_splits()
        split = split or ("test" if "test" in present else "all")
        name = f"the {split} split of {run.folder}" if split != "all" else f"the data of {run.folder}"
        parts = present if split == "all" else {split: run.data(split)}
    else:
        split = split or "all"
        whole = _read(given)
        name = given if split == "all" else f"{given} {split}"
        # other folders may have the same name
        key = f"{whole.name}-{split}-{hashlib.sha256(str(Path(given).resolve()).encode()).hexdigest()[:8]}"
        parts = {key: whole if split == "all" else whole.subset(split)}
    weights = _digest_of_weights(run)
    rows = [_embedded(run, part, key, weights, progress) for key, part in parts.items()]
    return SearchIndex(name, [*parts.values()], torch.cat(rows))


def embed_query(run: "Run", dataset: data.Dataset, progress: Progress = None) -> Tensor:
    """Embeddings (N, dim) of all items; the wrong kind of item, or one without an embedding, is an error."""
    features = getattr(dataset.items[0], "ndim", 0) == 1
    if features != (run.pipeline is None):
        wants, has = ("images", "features") if features else ("features", "images")
        raise ValueError(f"the run {run.folder} embeds {wants}, but {dataset.name} holds {has}")
    rows = run.embed(dataset, progress)
    if len(rows) != len(dataset):
        raise ValueError(
            f"{len(dataset) - len(rows):,} images of {dataset.name} cannot be read; "
            "`kinfold data check` names them: mend or remove them"
        )
    return rows


def _read(given: str) -> data.Dataset:
    path = Path(given)
    if path.is_dir():
        images = list_images(path)
        if images and not any("/" in image for image in images):  # pictures without classes are searched as well
            return data.create_dataset(
                path.name, data.ImageFiles(path, images), [""] * len(images), ["test"] * len(images)
            )
        return data.load("folder", path)
    if path.is_file():
        return data.load("table" if is_image_table(path) else "features", path)
    if given in registry.names("datasets"):
        return data.load(given)
    near = registry.suggest(given, registry.names("datasets"))
    raise ValueError(f"the gallery {given!r} is no folder, no file and no data set{near}")


def _embedded(run: "Run", dataset: data.Dataset, key: str, weights: str, progress: Progress) -> Tensor:
    """What the run keeps, where it is of these weights and these items; else made anew, and kept."""
    if run.pipeline is None:
        return embed_query(run, dataset, progress)  # a head on features costs no more than to see whether they changed
    prefix = f"embeddings-{re.sub(r'[^A-Za-z0-9.-]+', '_', key)}"
    file = run.folder / "cache" / f"{prefix}.safetensors"
    check_path(file, run.folder)
    identity = f"{weights} {run.pipeline!r} {compute_fingerprint(dataset, full=True)}"
    try:
        kept = read_state(file, within=run.folder)
        rows = kept.get("embeddings") if isinstance(kept, dict) and kept.get("identity") == identity else None
        if isinstance(rows, Tensor) and len(rows) == len(dataset):
            return rows
    except (ValueError, OSError):  # not there, damaged, not to be read: then it is made anew
        pass
    rows = embed_query(run, dataset, progress).cpu()
    try:
        make_folder(file.parent, run.folder)
        write_state(file, {"identity": identity, "embeddings": rows}, run.folder)
    except OSError as wrong:
        echo(f"the embeddings are not kept for the next search: {wrong}", err=True)
    return rows


def _digest_of_weights(run: "Run") -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(run.model().state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()[:16]
