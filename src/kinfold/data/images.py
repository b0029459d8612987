"""From an item to pixels; a missing, empty or corrupt image is named with its row."""

import struct
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

import numpy as np
from PIL import Image, UnidentifiedImageError

from kinfold.data.dataset import Dataset
from kinfold.data.items import Array, Box, ImageFile

Mode = Literal["RGB", "L"]
Errors = Literal["raise", "skip"]
BLOCK = 64
# what Pillow's decoders raise for damaged files; a decompression bomb is one more reason not to read on
DAMAGE = (
    OSError,
    SyntaxError,
    ValueError,
    IndexError,
    TypeError,
    EOFError,
    struct.error,
    zlib.error,
    Image.DecompressionBombError,
)


class ImageError(ValueError):
    """An image that cannot be read; the message names its row, its path and what is wrong with it."""


def decode(item: ImageFile | Array, mode: Mode = "RGB") -> Image.Image:
    """The picture of an item in colour ("RGB") or grey ("L"), cut to its box where it has one.

    Pixels are taken as stored: an orientation in the EXIF header is not applied, as in the papers' pipelines.

    >>> decode(np.zeros((4, 6), dtype=np.uint8)).size
    (6, 4)
    """
    if isinstance(item, ImageFile):
        return _decode_file(item, mode)
    if item.dtype != np.uint8 or item.ndim not in (2, 3):
        raise ValueError(f"an image is uint8 of shape (H, W) or (H, W, 3), got {item.dtype} {item.shape}")
    image = Image.fromarray(np.ascontiguousarray(item))
    return image if image.mode == mode else image.convert(mode)


def decoded(dataset: Dataset, workers: int = 2, mode: Mode = "RGB") -> Iterator[Image.Image | ImageError]:
    """Every picture in order, or the error in its place; threads help because decoding releases the interpreter."""

    def one(index: int) -> Image.Image | ImageError:
        try:
            return decode(dataset.items[index], mode)
        except ImageError as problem:
            return problem

    with ThreadPoolExecutor(max_workers=max(1, workers)) as pool:
        # in blocks, so that no more than a few pictures wait to be taken
        for start in range(0, len(dataset), BLOCK):
            yield from pool.map(one, range(start, min(start + BLOCK, len(dataset))))


SKIPPING = "errors='skip' (data.errors in a recipe) leaves such images out"


def broken_images(dataset: Dataset, workers: int = 2, mode: Mode = "RGB") -> dict[int, str]:
    """Decode every image once; what is wrong, by position in the data set."""
    found = enumerate(decoded(dataset, workers, mode))
    return {index: str(image) for index, image in found if isinstance(image, ImageError)}


def readable(dataset: Dataset, errors: Errors = "raise", workers: int = 2) -> tuple[Dataset, dict[int, str]]:
    """The data set without images that cannot be read, and what was wrong by position in the one given.

    `errors="raise"` stops instead, with the first one named. Labels stay as they are (see `Dataset.where`).
    """
    check_errors(errors)
    broken = broken_images(dataset, workers)
    if broken and errors == "raise":
        raise ImageError(f"{next(iter(broken.values()))} ({len(broken)} such of {len(dataset)}); {SKIPPING}")
    keep = np.ones(len(dataset), dtype=bool)
    keep[list(broken)] = False
    return dataset.where(keep), broken


def check_errors(errors: str) -> None:
    """Refuse a word that is neither raise nor skip."""
    if errors not in ("raise", "skip"):
        raise ValueError(f"errors must be 'raise' or 'skip', got {errors!r}")


def _decode_file(item: ImageFile, mode: Mode) -> Image.Image:
    try:
        with Image.open(item.path) as opened:
            image = _converted(opened, mode)
    except FileNotFoundError:
        raise ImageError(f"{item} is missing") from None
    except UnidentifiedImageError:
        empty = item.path.stat().st_size == 0
        raise ImageError(f"{item} {'has zero bytes' if empty else 'is not an image'}") from None
    except DAMAGE as damage:
        raise ImageError(f"{item} is corrupt: {damage}") from None
    return image if item.box is None else image.crop(_inside(item, item.box, image.size))


def _converted(opened: Image.Image, mode: Mode) -> Image.Image:
    opened.load()  # the pixels outlive the file
    if opened.mode == mode:
        return opened
    if opened.mode.startswith("I;16"):  # Pillow would clip 16 bits to the lowest 8
        return Image.fromarray((np.asarray(opened) >> 8).astype(np.uint8)).convert(mode)
    if opened.mode == "P" and "transparency" in opened.info:
        return opened.convert("RGBA").convert(mode)
    return opened.convert(mode)


def _inside(item: ImageFile, box: Box, size: tuple[int, int]) -> Box:
    left, upper, right, lower = box
    cut = (max(0, left), max(0, upper), min(size[0], right), min(size[1], lower))
    if cut[0] >= cut[2] or cut[1] >= cut[3]:
        raise ImageError(f"{item}: its box {box} lies outside the image of {size[0]} x {size[1]} pixels")
    return cut
