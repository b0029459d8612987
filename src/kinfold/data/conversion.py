"""Datasets without classes, from a path, an image, an array, a table, a list of these, or a torch dataset."""

from collections.abc import Mapping, Sized
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor

from kinfold.data.cells import Cells, channels_last
from kinfold.data.dataset import Dataset, create_dataset
from kinfold.data.items import Array, Rows
from kinfold.data.labeled import convert
from kinfold.data.memory_tables import is_memory_table


def to_dataset(things: Any, *, features: bool, taker: str = "this model") -> Dataset:
    """Make a dataset without classes from images or rows of features.

    Args:
        things: If `features` is False: the path of an image, a Pillow image, a uint8 array of one image (H, W),
            (H, W, 3) or (H, W, 4) or of several (N, H, W), (N, H, W, 3), the same as tensors with the channels first,
            a list of any of these, or a torch dataset (any object with a length and positions) of such images, alone
            or as the first entry of a tuple or the entry "image" of a dictionary.
            If it is True: numbers of shape (d,) or (N, d), a list of rows, or a torch dataset of rows.
            In both cases also a data frame, a table of pyarrow or a dataset of Hugging Face with a column path, image
            or embedding.
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
    if is_memory_table(things):
        if not len(things):
            raise ValueError("there is nothing to embed: the table is empty")
        dataset = convert(things, [""] * _count_rows(things), split="test")
        _check_kind(dataset, features, taker)
        return dataset
    if hasattr(things, "to_numpy"):  # a column of a data frame
        things = things.to_numpy()
    if isinstance(things, Tensor):
        things = channels_last(things.detach().cpu())
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
    items = Rows(things) if isinstance(things, np.ndarray) else Cells(things, "row" if features else "image")
    return create_dataset("the list", items, [""] * len(things), ["test"] * len(things))


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
    name = f"the path {str(thing)!r}" if isinstance(thing, str | Path) else type(thing).__name__
    return (
        f"{taker} embeds {'features' if features else 'images'}, and cannot read {name}; "
        f"give {expected}, a list of them, a dataset of kinfold.data.load(...), or a torch dataset"
    )


def _count_rows(table: Any) -> int:
    """Rows of a table, or of all splits of a dataset of Hugging Face."""
    return sum(map(len, table.values())) if isinstance(table, Mapping) else len(table)
