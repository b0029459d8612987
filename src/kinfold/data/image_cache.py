"""Small datasets decoded once and kept in memory, so that an epoch costs augmentation only."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from kinfold.data.dataset import Dataset
from kinfold.data.image_reading import BACKGROUND, ImageError, Mode
from kinfold.data.images import SKIP_HINT, Errors, check_errors, decode_all
from kinfold.data.items import Array
from kinfold.data.transforms import Resize


class DecodedImages:
    """Decoded images of any sizes: uint8 (H, W, 3) or (H, W)."""

    def __init__(self, arrays: Sequence[Array]) -> None:
        self._arrays = arrays

    def __len__(self) -> int:
        return len(self._arrays)

    def __getitem__(self, index: int, /) -> Array:
        return self._arrays[index]

    @property
    def nbytes(self) -> int:
        """Bytes of all pixels."""
        return sum(array.nbytes for array in self._arrays)

    def take(self, indices: Array) -> "DecodedImages":
        """Return the images at these positions; the pixels are shared, not copied."""
        return DecodedImages([self._arrays[index] for index in indices.tolist()])


def cache_images(
    dataset: Dataset,
    short_side: int | None = None,
    mode: Mode = "RGB",
    limit: int = 2 << 30,
    errors: Errors = "raise",
    workers: int = 2,
    background: str = BACKGROUND,
) -> tuple[Dataset, dict[int, str]]:
    """Decode all images of a dataset into memory. Forked workers share the pixels.

    Args:
        dataset: A dataset of images.
        short_side: Shrink larger images so that their short side has this many pixels. This saves memory and time;
            crops then come from the smaller image.
        mode: "RGB", or "L" for gray.
        limit: Largest number of bytes that the pixels may take.
        errors: "raise" stops at an image that cannot be read; "skip" leaves it out.
        workers: Number of threads.
        background: Color under transparent pixels, a name or "#rrggbb".

    Returns:
        The dataset with its images in memory, and the error messages of skipped images by position in `dataset`.

    Raises:
        ImageError: An image cannot be read and `errors` is "raise".
        ValueError: The images take more than `limit` bytes.
    """
    check_errors(errors)
    resize = None if short_side is None else Resize(short_side)
    unused = torch.Generator()  # Resize draws nothing
    arrays: list[Array] = []
    skipped: dict[int, str] = {}
    size = 0
    for index, image in enumerate(decode_all(dataset, workers, mode, background)):
        if isinstance(image, ImageError):
            if errors == "raise":
                raise ImageError(f"{image}; {SKIP_HINT}")
            skipped[index] = str(image)
            continue
        if resize is not None and short_side is not None and min(image.size) > short_side:
            image = resize(image, unused)
        arrays.append(np.asarray(image))
        size += arrays[-1].nbytes
        if size > limit:
            raise ValueError(
                f"{dataset.name}: {len(arrays)} of {len(dataset)} images already take more than "
                f"{limit / 2**30:.1f} GiB; give a smaller short_side, a larger limit, or load from disk"
            )
    keep = np.ones(len(dataset), dtype=bool)
    keep[list(skipped)] = False
    return replace(dataset.where(keep), items=DecodedImages(arrays)), skipped
