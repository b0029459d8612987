"""From an item to pixels; a missing, empty or corrupt image is named with its row."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np
from PIL import Image

from kinfold.data.dataset import Dataset
from kinfold.data.image_reading import (
    BACKGROUND,
    ImageError,
    Mode,
    flatten,
    is_transparent,
    open_image,
    parse_background,
)
from kinfold.data.items import Array, Box, ImageBytes, ImageFile

Errors = Literal["raise", "skip"]
ImageItem = ImageFile | ImageBytes | Image.Image | Array
Result = TypeVar("Result")
BLOCK = 64


def decode(item: ImageItem, mode: Mode = "RGB", background: str = BACKGROUND) -> Image.Image:
    """The picture of an item in colour ("RGB") or grey ("L"), cut to its box where it has one.

    Transparent pixels are drawn on `background`: a name such as "white", or "#rrggbb". Pixels are taken as stored: an
    orientation in the EXIF header is not applied, as in the papers' pipelines.

    >>> decode(np.zeros((4, 6), dtype=np.uint8)).size
    (6, 4)
    """
    return _cut(item, _flat(item, _stored(item), mode, background))


def decode_all(
    dataset: Dataset, workers: int = 2, mode: Mode = "RGB", background: str = BACKGROUND
) -> Iterator[Image.Image | ImageError]:
    """Every picture in order, or the error in its place; threads help because decoding releases the interpreter."""
    return _apply(dataset, lambda item: decode(item, mode, background), workers)


@dataclass(frozen=True)
class ImageCheck:
    """What decoding every image once has shown.

    Attributes:
        broken: What is wrong, by position in the data set.
        transparent: Positions of images with at least one pixel that is not opaque.
    """

    broken: dict[int, str]
    transparent: list[int]


def check_images(dataset: Dataset, workers: int = 2) -> ImageCheck:
    """Decode every image once and note which cannot be read, and which let a background through."""
    broken: dict[int, str] = {}
    transparent: list[int] = []
    for index, result in enumerate(_apply(dataset, _check, workers)):
        if isinstance(result, ImageError):
            broken[index] = str(result)
        elif result:
            transparent.append(index)
    return ImageCheck(broken, transparent)


SKIP_HINT = "errors='skip' (data.errors in a recipe) leaves such images out"


def find_broken_images(dataset: Dataset, workers: int = 2) -> dict[int, str]:
    """Decode every image once; what is wrong, by position in the data set."""
    return check_images(dataset, workers).broken


def keep_readable(dataset: Dataset, errors: Errors = "raise", workers: int = 2) -> tuple[Dataset, dict[int, str]]:
    """The data set without images that cannot be read, and what was wrong by position in the one given.

    `errors="raise"` stops instead, with the first one named. Labels stay as they are (see `Dataset.where`).
    """
    check_errors(errors)
    broken = find_broken_images(dataset, workers)
    if broken and errors == "raise":
        raise ImageError(f"{next(iter(broken.values()))} ({len(broken)} such of {len(dataset)}); {SKIP_HINT}")
    keep = np.ones(len(dataset), dtype=bool)
    keep[list(broken)] = False
    return dataset.where(keep), broken


def check_errors(errors: str) -> None:
    """Refuse a word that is neither raise nor skip."""
    if errors not in ("raise", "skip"):
        raise ValueError(f"errors must be 'raise' or 'skip', got {errors!r}")


def _apply(dataset: Dataset, function: Callable[[ImageItem], Result], workers: int) -> Iterator[Result | ImageError]:
    """The result for every item in order, or the error in its place."""

    def one(index: int) -> Result | ImageError:
        try:
            return function(dataset.items[index])
        except ImageError as problem:
            return problem

    with ThreadPoolExecutor(max_workers=max(1, workers)) as pool:
        # in blocks, so that no more than a few pictures wait to be taken
        for start in range(0, len(dataset), BLOCK):
            yield from pool.map(one, range(start, min(start + BLOCK, len(dataset))))


def _check(item: ImageItem) -> bool:
    """Whether an image is transparent anywhere; an error where training could not use it."""
    image = _stored(item)
    _cut(item, _flat(item, image, "RGB", BACKGROUND))
    return is_transparent(image)


def _flat(item: ImageItem, image: Image.Image, mode: Mode, background: str) -> Image.Image:
    parse_background(background)  # its error is not one of the image
    try:
        return flatten(image, mode, background)
    except ValueError as problem:  # a mode that Pillow cannot convert, or a range that is not known
        if isinstance(item, ImageFile | ImageBytes):
            raise ImageError(f"{item} cannot be used: {problem}") from None
        raise


def _cut(item: ImageItem, image: Image.Image) -> Image.Image:
    """The part of the image inside its box, where it has one."""
    box = item.box if isinstance(item, ImageFile | ImageBytes) else None
    return image if box is None else image.crop(_inside(item, box, image.size))


def _stored(item: ImageItem) -> Image.Image:
    """The decoded image of an item, in the mode that it was stored in."""
    match item:
        case ImageFile():
            return open_image(item.path, str(item))
        case ImageBytes():
            return open_image(item.content, str(item))
        case Image.Image():
            return item
    if item.dtype != np.uint8 or item.ndim not in (2, 3) or (item.ndim == 3 and item.shape[2] not in (1, 2, 3, 4)):
        raise ValueError(f"an image is uint8 of shape (H, W) or (H, W, 3), got {item.dtype} {item.shape}")
    if item.ndim == 3 and item.shape[2] == 1:
        item = item[:, :, 0]
    return Image.fromarray(np.ascontiguousarray(item))


def _inside(item: object, box: Box, size: tuple[int, int]) -> Box:
    left, upper, right, lower = box
    cut = (max(0, left), max(0, upper), min(size[0], right), min(size[1], lower))
    if cut[0] >= cut[2] or cut[1] >= cut[3]:
        raise ImageError(f"{item}: its box {box} lies outside the image of {size[0]} x {size[1]} pixels")
    return cut
