"""Datasets without classes, from a path, a Pillow image, an array, a list of these, or a torch dataset."""

from collections.abc import Callable, Mapping, Sized
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor

from kinfold.data.dataset import Dataset, create_dataset
from kinfold.data.items import Array, ImageBytes, ImageFile, Rows

_TABLES = {".csv": "table", ".parquet": "table", ".pq": "table", ".npz": "features", ".npy": "features"}


def to_dataset(things: Any, *, features: bool, taker: str = "this model") -> Dataset:
    """Make a dataset without classes from images or rows of features.

    Args:
        things: If `features` is False: the path of an image, a Pillow image, a uint8 array of one image (H, W),
            (H, W, 3) or (H, W, 4) or of several (N, H, W), (N, H, W, 3), the same as tensors with the channels first,
            a list of any of these, or a torch dataset (any object with a length and positions) of such images, alone
            or as the first entry of a tuple or the entry "image" of a dictionary.
            If it is True: numbers of shape (d,) or (N, d), a list of rows, or a torch dataset of rows.
        features: Whether rows of features are expected, not images.
        taker: Name of the model that embeds the items, for error messages.

    Returns:
        A dataset in the order of `things`, with all items in the split "test". A `Dataset` is returned unchanged.

    Raises:
        ValueError: `things` is of another kind; the message says what to give instead.
    """
    if isinstance(things, Dataset):
        if len(things):
            _check_kind(things, features, taker)
        return things
    if isinstance(things, str | Path | Image.Image):
        things = [things]
    if hasattr(things, "to_numpy"):  # a pandas data frame
        things = things.to_numpy()
    if isinstance(things, Tensor):
        things = _channels_last(things.detach().cpu())
    if isinstance(things, np.ndarray):
        things = _check_rows(things, taker) if features else _separate_images(things, taker)
    if features and isinstance(things, list | tuple) and things and not isinstance(things[0], tuple | Mapping):
        things = _stack_rows(things, taker)
    if isinstance(things, str | bytes | Mapping) or not hasattr(things, "__getitem__"):
        raise ValueError(_explain(things, features, taker))
    if not isinstance(things, Sized):
        raise ValueError(f"{type(things).__name__} has no length; give a list or a dataset with positions")
    if not len(things):
        raise ValueError("there is nothing to embed: the list is empty")
    items = (
        Rows(things) if isinstance(things, np.ndarray) else _ConvertedItems(things, _to_row if features else _to_image)
    )
    return create_dataset("the list", items, [""] * len(things), ["test"] * len(things))


class _ConvertedItems:
    """Items of a list or torch dataset, each converted when it is used."""

    def __init__(self, things: Any, convert: Callable[[Any, int], Any], indices: Array | None = None) -> None:
        self._things, self._convert = things, convert
        self._indices = np.arange(len(things)) if indices is None else indices

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, index: int, /) -> Any:
        position = int(self._indices[index])
        return self._convert(_get_input(self._things[position]), position)

    def take(self, indices: Array) -> "_ConvertedItems":
        """Return the items at these positions, in this order."""
        return _ConvertedItems(self._things, self._convert, self._indices[indices])


def _get_input(sample: Any) -> Any:
    """The image or row of a sample, which may come with a label and more."""
    if isinstance(sample, tuple) and sample:
        return sample[0]
    if isinstance(sample, Mapping) and "image" in sample:
        return sample["image"]
    return sample


def _to_image(thing: Any, position: int) -> Any:
    if isinstance(thing, str | Path):
        path = Path(thing)
        if path.is_dir():
            raise ValueError(
                f"{path} is a folder; read it with kinfold.data.load('folder', {str(path)!r}) and embed that"
            )
        if path.suffix.lower() in _TABLES:
            reader = _TABLES[path.suffix.lower()]
            raise ValueError(f"{path} is no image; read it with kinfold.data.load({reader!r}, ...) and embed that")
        return ImageFile(path, None, position + 1, "the list")
    if isinstance(thing, ImageFile | ImageBytes | Image.Image):
        return thing
    if isinstance(thing, Tensor):
        thing = _channels_last(thing.detach().cpu())
    if not isinstance(thing, np.ndarray):
        raise ValueError(
            f"item {position} is of type {type(thing).__name__}; an image is a path, a Pillow image or a uint8 array"
        )
    if thing.dtype != np.uint8:
        raise ValueError(
            f"item {position} holds {thing.dtype}; an image is uint8 with values in 0..255. The transforms of the run "
            "are applied here: leave conversions to floats, such as ToTensor, out"
        )
    return thing


def _to_row(thing: Any, position: int) -> Array:
    row = thing.detach().cpu().numpy() if isinstance(thing, Tensor) else thing
    if not isinstance(row, np.ndarray) or row.ndim != 1 or row.dtype.kind not in "fiu":
        kind = f"{row.dtype} {row.shape}" if isinstance(row, np.ndarray) else type(row).__name__
        raise ValueError(f"item {position} is {kind}; a row of features is one array of numbers, (d,)")
    return row


def _channels_last(tensor: Tensor) -> Array:
    """Convert a tensor to an array, and move the channels of images (C, H, W) and (N, C, H, W) to the end."""
    if tensor.ndim in (3, 4) and tensor.shape[-3] in (1, 3, 4) and tensor.shape[-1] not in (3, 4):
        tensor = tensor.movedim(-3, -1)
    array: Array = tensor.numpy()
    return array


def _separate_images(array: Array, taker: str) -> list[Array]:
    """Return one array for each image."""
    if array.dtype != np.uint8:
        raise ValueError(
            f"{taker} embeds images, which are uint8 with values in 0..255, got {array.dtype} {array.shape}; its own "
            "transforms are applied here, so leave normalization out"
        )
    if array.ndim == 2 or (array.ndim == 3 and array.shape[2] in (1, 3, 4)):
        return [array]
    if array.ndim == 3 or (array.ndim == 4 and array.shape[3] in (1, 3, 4)):
        return [*array]
    raise ValueError(
        f"images are uint8 of shape (H, W), (H, W, 3), (N, H, W) or (N, H, W, 3), got {array.dtype} {array.shape}"
    )


def _check_rows(array: Array, taker: str) -> Array:
    array = array[None] if array.ndim == 1 else array
    if array.ndim != 2 or array.dtype.kind not in "fiu":
        raise ValueError(f"{taker} embeds features, which are numbers of shape (N, d), got {array.dtype} {array.shape}")
    return array


def _stack_rows(things: Any, taker: str) -> Array:
    """Convert a list of rows, or one row as a list of numbers, to one array."""
    image = next((thing for thing in things if isinstance(thing, str | Path | Image.Image)), None)
    if image is not None:
        raise ValueError(_explain(image, True, taker))
    try:
        array = np.asarray([thing.detach().cpu().numpy() if isinstance(thing, Tensor) else thing for thing in things])
    except ValueError:
        raise ValueError(f"{taker} embeds features: all rows must have the same length") from None
    return _check_rows(array, taker)


def _check_kind(dataset: Dataset, features: bool, taker: str) -> None:
    if (getattr(dataset.items[0], "ndim", 0) == 1) != features:
        wants, has = ("features", "images") if features else ("images", "features")
        raise ValueError(f"{taker} embeds {wants}, but {dataset.name} holds {has}")


def _explain(thing: Any, features: bool, taker: str) -> str:
    expected = "rows of features, (N, d)" if features else "paths, Pillow images or uint8 arrays"
    return (
        f"{taker} embeds {'features' if features else 'images'}, and cannot read {type(thing).__name__}; "
        f"give {expected}, a list of them, a dataset of kinfold.data.load(...), or a torch dataset"
    )
