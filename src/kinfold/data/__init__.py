"""Datasets: published ones in their official layouts, and your own folders, tables and feature files.

Every reader returns a `Dataset`: items, labels, splits, class names, and coarse labels or query and gallery roles where
there are any. `Batches` turns it into tensors.
"""

import inspect
import os
from pathlib import Path
from typing import Any

from kinfold import registry
from kinfold.data.archives import unpack
from kinfold.data.class_shift import ClassShift, assign_shift, make_shifts
from kinfold.data.color import ColorJitter, RandomGray
from kinfold.data.conversion import to_dataset
from kinfold.data.dataset import Dataset, create_dataset
from kinfold.data.image_cache import cache_images
from kinfold.data.image_reading import ImageError, open_image
from kinfold.data.images import ImageCheck, check_images, decode, find_broken_images, keep_readable
from kinfold.data.items import EncodedImages, ImageBytes, ImageFile, ImageFiles, Items, Rows
from kinfold.data.labeled import convert
from kinfold.data.loading import Batch, Batches
from kinfold.data.normalize import BN_INCEPTION, EFFICIENTNET_LITE, IMAGENET, Normalize
from kinfold.data.pipelines import Pipeline, create_pipeline
from kinfold.data.transforms import CenterCrop, Compose, RandomCrop, RandomFlip, RandomResizedCrop, Resize, Warp

__all__ = [
    "BN_INCEPTION",
    "EFFICIENTNET_LITE",
    "IMAGENET",
    "Batch",
    "Batches",
    "CenterCrop",
    "ClassShift",
    "ColorJitter",
    "Compose",
    "Dataset",
    "EncodedImages",
    "ImageBytes",
    "ImageCheck",
    "ImageError",
    "ImageFile",
    "ImageFiles",
    "Items",
    "Normalize",
    "Pipeline",
    "RandomCrop",
    "RandomFlip",
    "RandomGray",
    "RandomResizedCrop",
    "Resize",
    "Rows",
    "Warp",
    "assign_shift",
    "cache_images",
    "check_images",
    "convert",
    "create_dataset",
    "create_pipeline",
    "decode",
    "find_broken_images",
    "keep_readable",
    "load",
    "make_shifts",
    "open_image",
    "to_dataset",
    "unpack",
]

FOLDER_VARIABLE = "KINFOLD_DATA"


def load(name: str, root: Path | str | None = None, **options: Any) -> Dataset:
    """Load a dataset by its registered name.

    Args:
        name: One of `kinfold.list("datasets")`.
        root: Folder of the dataset, or the file for "table" and "features". If left out, the folder `name` inside the
            folder that the environment variable KINFOLD_DATA names.
        **options: Options of the reader, such as `check=`, `boxes=` or `columns=`.

    Returns:
        The dataset.

    Raises:
        ValueError: The name or an option is unknown, `root` is missing or superfluous, or the files are incomplete. The
            message says what to download and where to put it.
        ImportError: The reader needs a library that is not installed.

    Examples:
        >>> load("glyphs")  # doctest: +SKIP
        <Dataset 'glyphs': 23,777 items (11,917 train, 11,860 test), 1,935 classes ('!', ...)>
    """
    reader = registry.resolve("datasets", name)
    parameter = inspect.signature(reader).parameters.get("root")
    if root is not None and parameter is None:
        raise ValueError(f"{name!r} is not read from a folder: leave root out")
    if root is not None:
        options["root"] = root
    elif parameter is not None and parameter.default is parameter.empty:
        options["root"] = _find_default_root(name)
    dataset = registry.create("datasets", name, **options)
    assert isinstance(dataset, Dataset)
    return dataset


def _find_default_root(name: str) -> Path:
    parent = os.environ.get(FOLDER_VARIABLE)
    if not parent:
        raise ValueError(
            f"where is {name!r}? Give its folder or file with --root on the command line, data.root in a recipe or "
            f"root= in Python, or set the environment variable {FOLDER_VARIABLE} to a folder that has {name!r} in it"
        )
    return Path(parent) / name
