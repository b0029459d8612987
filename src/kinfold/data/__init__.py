"""What is learned from: published data sets in their official layouts, folders, tables and feature files of one's own.

Every reader gives a `Dataset`: items, labels, split, class names, and coarse labels or query and gallery roles where
there are any. `Batches` turns one into tensors.
"""

import inspect
import os
from pathlib import Path
from typing import Any

from kinfold import registry
from kinfold.data.archives import unpack
from kinfold.data.color import ColorJitter, RandomGray
from kinfold.data.conversion import to_dataset
from kinfold.data.dataset import Dataset, create_dataset
from kinfold.data.image_cache import cache_images
from kinfold.data.image_reading import ImageError, open_image
from kinfold.data.images import ImageCheck, check_images, decode, find_broken_images, keep_readable
from kinfold.data.items import EncodedImages, ImageBytes, ImageFile, ImageFiles, Items, Rows
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
    "cache_images",
    "check_images",
    "create_dataset",
    "create_pipeline",
    "decode",
    "find_broken_images",
    "keep_readable",
    "load",
    "open_image",
    "to_dataset",
    "unpack",
]

FOLDER_VARIABLE = "KINFOLD_DATA"


def load(name: str, root: Path | str | None = None, **options: Any) -> Dataset:
    """Read a data set by its registered name.

    `root` is the folder it lies in, or the file for table and features. Without it, the folder of that name below the
    environment variable KINFOLD_DATA is read. `options` are those of the reader: check=, boxes=, columns=, ...
    """
    reader = registry.resolve("datasets", name)
    parameter = inspect.signature(reader).parameters.get("root")
    if root is not None and parameter is None:
        raise ValueError(f"{name!r} is not read from a folder: leave root out")
    if root is not None:
        options["root"] = root
    elif parameter is not None and parameter.default is parameter.empty:
        options["root"] = _usual_root(name)
    dataset = registry.create("datasets", name, **options)
    assert isinstance(dataset, Dataset)
    return dataset


def _usual_root(name: str) -> Path:
    below = os.environ.get(FOLDER_VARIABLE)
    if not below:
        raise ValueError(
            f"where is {name!r}? Give its folder or file with --root on the command line, data.root in a recipe or "
            f"root= in Python, or set the environment variable {FOLDER_VARIABLE} to a folder that has {name!r} in it"
        )
    return Path(below) / name
