"""Decoding of items to images; errors name the row of a missing, empty or corrupt image."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

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
from kinfold.data.labeled import convert

Errors = Literal["raise", "skip"]
ImageItem = ImageFile | ImageBytes | Image.Image | Array
Result = TypeVar("Result")
SKIP_HINT = "fix or remove it; errors='skip' (--set data.errors=skip for kinfold train) leaves such images out"
_CHUNK = 64  # images that may wait in memory until they are used


def decode(item: ImageItem, mode: Mode = "RGB", background: str = BACKGROUND) -> Image.Image:
    """Decode the image of an item, and crop it to its box if it has one.

    Pixels are taken as they are stored: an orientation in the EXIF header is not applied, as in the papers' pipelines.

    Args:
        item: An item of a dataset, a Pillow image, or a uint8 array (H, W) or (H, W, C).
        mode: "RGB", or "L" for gray.
        background: Color under transparent pixels, a name such as "white" or "#rrggbb".

    Raises:
        ImageError: The image cannot be read; the message names its row.
        ValueError: `item` is an array of another type or shape, or the background is not a color.

    Examples:
        >>> decode(np.zeros((4, 6), dtype=np.uint8)).size
        (6, 4)
    """
    return _crop(item, _flatten(item, _open(item), mode, background))


def decode_all(
    dataset: Dataset, workers: int = 2, mode: Mode = "RGB", background: str = BACKGROUND
) -> Iterator[Image.Image | ImageError]:
    """Yield every image in order, or its error. Threads help, because decoding releases the interpreter lock."""
    return _map_items(dataset, lambda item: decode(item, mode, background), workers)


@dataclass(frozen=True)
class ImageCheck:
    """The result of decoding every image once.

    Attributes:
        broken: Error messages of images that cannot be read, by position in the dataset.
        transparent: Positions of images with at least one pixel that is not opaque.
        blank: Positions of images of a single color, as they are drawn on white.
    """

    broken: dict[int, str]
    transparent: list[int]
    blank: list[int]


def check_images(dataset: Any, workers: int = 2) -> ImageCheck:
    """Decode every image once and list those that cannot be read, those with transparent pixels and those of one color.

    Args:
        dataset: A dataset of images, or whatever `kinfold.data.convert` takes.
        workers: Number of threads.
    """
    dataset = convert(dataset)
    broken: dict[int, str] = {}
    transparent: list[int] = []
    blank: list[int] = []
    for index, result in enumerate(_map_items(dataset, _check, workers)):
        if isinstance(result, ImageError):
            broken[index] = str(result)
            continue
        is_clear, is_blank = result
        if is_clear:
            transparent.append(index)
        if is_blank:
            blank.append(index)
    return ImageCheck(broken, transparent, blank)


def find_broken_images(dataset: Any, workers: int = 2) -> dict[int, str]:
    """Decode every image once and return error messages by position in the dataset.

    Args:
        dataset: A dataset of images.
        workers: Number of threads.
    """
    return check_images(dataset, workers).broken


def keep_readable(dataset: Dataset, errors: Errors = "raise", workers: int = 2) -> tuple[Dataset, dict[int, str]]:
    """Decode every image once and leave out those that cannot be read.

    Args:
        dataset: A dataset of images.
        errors: "raise" stops at the first image that cannot be read; "skip" leaves such images out.
        workers: Number of threads.

    Returns:
        The readable part of the dataset, with labels as they are (see `Dataset.where`), and the error messages of the
        others by position in `dataset`.

    Raises:
        ImageError: An image cannot be read and `errors` is "raise".
    """
    check_errors(errors)
    broken = find_broken_images(dataset, workers)
    if broken and errors == "raise":
        raise ImageError(f"{next(iter(broken.values()))} ({len(broken)} such of {len(dataset)}); {SKIP_HINT}")
    keep = np.ones(len(dataset), dtype=bool)
    keep[list(broken)] = False
    return dataset.where(keep), broken


def check_errors(errors: str) -> None:
    """Raise a ValueError unless `errors` is "raise" or "skip"."""
    if errors not in ("raise", "skip"):
        raise ValueError(f"errors must be 'raise' or 'skip', got {errors!r}")


def _map_items(
    dataset: Dataset, function: Callable[[ImageItem], Result], workers: int
) -> Iterator[Result | ImageError]:
    """Yield the result for every item in order, or its error."""

    def call(index: int) -> Result | ImageError:
        try:
            return function(dataset.items[index])
        except ImageError as error:
            return error

    with ThreadPoolExecutor(max_workers=max(1, workers)) as pool:
        for start in range(0, len(dataset), _CHUNK):
            yield from pool.map(call, range(start, min(start + _CHUNK, len(dataset))))


def _check(item: ImageItem) -> tuple[bool, bool]:
    """Whether an image has transparent pixels, and whether it has one color; an error if training could not use it."""
    image = _open(item)
    drawn = _crop(item, _flatten(item, image, "RGB", BACKGROUND))
    return is_transparent(image), drawn.getcolors(1) is not None


def _flatten(item: ImageItem, image: Image.Image, mode: Mode, background: str) -> Image.Image:
    parse_background(background)  # an error of the background must not count as one of the image
    try:
        return flatten(image, mode, background)
    except ValueError as error:  # a mode that Pillow cannot convert, or an unknown range of values
        if isinstance(item, ImageFile | ImageBytes):
            raise ImageError(f"{item} cannot be used: {error}") from None
        raise


def _crop(item: ImageItem, image: Image.Image) -> Image.Image:
    box = item.box if isinstance(item, ImageFile | ImageBytes) else None
    return image if box is None else image.crop(_clip_box(item, box, image.size))


def _open(item: ImageItem) -> Image.Image:
    """Return the image of an item in the mode that it is stored in."""
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


def _clip_box(item: object, box: Box, size: tuple[int, int]) -> Box:
    left, upper, right, lower = box
    clipped = (max(0, left), max(0, upper), min(size[0], right), min(size[1], lower))
    if clipped[0] >= clipped[2] or clipped[1] >= clipped[3]:
        raise ImageError(f"{item}: its box {box} lies outside the image of {size[0]} x {size[1]} pixels")
    return clipped
