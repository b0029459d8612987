"""Image transforms of the papers on Pillow images, before normalisation; all randomness from the generator given.

Every transform is called as `transform(image, generator)`. Sizes and draws follow torchvision's definitions, which the
papers used. Pixels stay uint8: `kinfold.data.Normalize` works on whole batches.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from PIL import Image
from torch import Generator

BILINEAR = Image.Resampling.BILINEAR
BICUBIC = Image.Resampling.BICUBIC

Transform = Callable[[Image.Image, Generator], Image.Image]


@dataclass(frozen=True)
class Compose:
    """One transform after the other.

    >>> Compose((Resize(32), CenterCrop(28)))(Image.new("RGB", (64, 48)), Generator()).size
    (28, 28)
    """

    steps: Sequence[Transform]

    def __call__(self, image: Image.Image, generator: Generator) -> Image.Image:
        for step in self.steps:
            image = step(image, generator)
        return image


@dataclass(frozen=True)
class Resize:
    """The short side becomes `size`, the other keeps the proportion."""

    size: int
    resample: Image.Resampling = BILINEAR

    def __call__(self, image: Image.Image, generator: Generator) -> Image.Image:
        width, height = image.size
        short, long = min(width, height), max(width, height)
        if short == self.size:
            return image
        other = int(self.size * long / short)
        return image.resize((self.size, other) if width <= height else (other, self.size), self.resample)


@dataclass(frozen=True)
class Warp:
    """Both sides become `size`; the proportion is lost."""

    size: int
    resample: Image.Resampling = BILINEAR

    def __call__(self, image: Image.Image, generator: Generator) -> Image.Image:
        return image if image.size == (self.size, self.size) else image.resize((self.size, self.size), self.resample)


@dataclass(frozen=True)
class CenterCrop:
    """The middle square of `size` pixels; a smaller image is padded with black."""

    size: int

    def __call__(self, image: Image.Image, generator: Generator) -> Image.Image:
        left, upper = round((image.width - self.size) / 2), round((image.height - self.size) / 2)
        return image.crop((left, upper, left + self.size, upper + self.size))


@dataclass(frozen=True)
class RandomCrop:
    """A square of `size` pixels anywhere; a smaller image is padded with black on both sides first."""

    size: int

    def __call__(self, image: Image.Image, generator: Generator) -> Image.Image:
        left, upper = self._start(image.width, generator), self._start(image.height, generator)
        return image.crop((left, upper, left + self.size, upper + self.size))

    def _start(self, length: int, generator: Generator) -> int:
        room = length - self.size
        return room // 2 if room <= 0 else draw_integer(room + 1, generator)


@dataclass(frozen=True)
class RandomResizedCrop:
    """A part of the area in `scale` with a proportion in `ratio` (log-uniform), resized to a square of `size`.

    Ten tries; then the largest middle part whose proportion is allowed.
    """

    size: int
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    resample: Image.Resampling = BILINEAR

    def __call__(self, image: Image.Image, generator: Generator) -> Image.Image:
        # cropped first: resizing with a box would let pixels outside the crop bleed in at its border
        return image.crop(self.box(image.width, image.height, generator)).resize((self.size, self.size), self.resample)

    def box(self, width: int, height: int, generator: Generator) -> tuple[int, int, int, int]:
        """The part to keep: left, upper, right, lower."""
        low, high = math.log(self.ratio[0]), math.log(self.ratio[1])
        for _ in range(10):
            area = width * height * draw_uniform(*self.scale, generator)
            proportion = math.exp(draw_uniform(low, high, generator))
            w, h = round(math.sqrt(area * proportion)), round(math.sqrt(area / proportion))
            if 0 < w <= width and 0 < h <= height:
                upper, left = draw_integer(height - h + 1, generator), draw_integer(width - w + 1, generator)
                return left, upper, left + w, upper + h
        w, h = width, height
        if width / height < self.ratio[0]:
            h = round(width / self.ratio[0])
        elif width / height > self.ratio[1]:
            w = round(height * self.ratio[1])
        left, upper = (width - w) // 2, (height - h) // 2
        return left, upper, left + w, upper + h


@dataclass(frozen=True)
class RandomFlip:
    """Left and right exchanged with probability `p`."""

    p: float = 0.5

    def __call__(self, image: Image.Image, generator: Generator) -> Image.Image:
        return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if draw_uniform(0, 1, generator) < self.p else image


def draw_uniform(low: float, high: float, generator: Generator) -> float:
    """One number between low and high."""
    return low + (high - low) * float(torch.rand((), generator=generator, dtype=torch.float64))


def draw_integer(stop: int, generator: Generator) -> int:
    """One of 0..stop-1."""
    return int(torch.randint(stop, (), generator=generator))
