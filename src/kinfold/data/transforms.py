"""Image transforms of the papers, on Pillow images and before normalization.

Every transform is called as `transform(image, generator)`, and draws all random numbers from the generator. Sizes and
draws follow torchvision's definitions, which the papers used. Pixels stay uint8: `kinfold.data.Normalize` works on
whole batches.
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
    """Apply several transforms in order.

    Args:
        steps: The transforms.

    Examples:
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
    """Resize an image so that its short side has `size` pixels; the aspect ratio stays.

    Args:
        size: Length of the short side.
        resample: Interpolation of Pillow.
    """

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
    """Resize an image to a square of `size` pixels; the aspect ratio is lost.

    Args:
        size: Length of both sides.
        resample: Interpolation of Pillow.
    """

    size: int
    resample: Image.Resampling = BILINEAR

    def __call__(self, image: Image.Image, generator: Generator) -> Image.Image:
        return image if image.size == (self.size, self.size) else image.resize((self.size, self.size), self.resample)


@dataclass(frozen=True)
class CenterCrop:
    """Crop the square in the center; a smaller image is padded with black.

    Args:
        size: Length of both sides.
    """

    size: int

    def __call__(self, image: Image.Image, generator: Generator) -> Image.Image:
        left, upper = round((image.width - self.size) / 2), round((image.height - self.size) / 2)
        return image.crop((left, upper, left + self.size, upper + self.size))


@dataclass(frozen=True)
class RandomCrop:
    """Crop a square at a random position; a smaller image is first padded with black on both sides.

    Args:
        size: Length of both sides.
    """

    size: int

    def __call__(self, image: Image.Image, generator: Generator) -> Image.Image:
        left, upper = self._draw_start(image.width, generator), self._draw_start(image.height, generator)
        return image.crop((left, upper, left + self.size, upper + self.size))

    def _draw_start(self, length: int, generator: Generator) -> int:
        margin = length - self.size
        return margin // 2 if margin <= 0 else draw_integer(margin + 1, generator)


@dataclass(frozen=True)
class RandomResizedCrop:
    """Crop a random part of an image and resize it to a square.

    A part is drawn up to ten times; if none fits, it is the largest centered part with an allowed aspect ratio.

    Args:
        size: Length of both sides of the result.
        scale: Range of the area of the part, as a fraction of the image.
        ratio: Range of its aspect ratio, drawn log-uniformly.
        resample: Interpolation of Pillow.
    """

    size: int
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    resample: Image.Resampling = BILINEAR

    def __call__(self, image: Image.Image, generator: Generator) -> Image.Image:
        # cropped first: resizing with a box would let pixels outside the crop bleed in at its border
        box = self.draw_box(image.width, image.height, generator)
        return image.crop(box).resize((self.size, self.size), self.resample)

    def draw_box(self, width: int, height: int, generator: Generator) -> tuple[int, int, int, int]:
        """Draw the part to keep: left, upper, right, lower."""
        low, high = math.log(self.ratio[0]), math.log(self.ratio[1])
        for _ in range(10):
            area = width * height * draw_uniform(*self.scale, generator)
            ratio = math.exp(draw_uniform(low, high, generator))
            w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
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
    """Exchange left and right, at random.

    Args:
        p: Probability of the flip.
    """

    p: float = 0.5

    def __call__(self, image: Image.Image, generator: Generator) -> Image.Image:
        return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if draw_uniform(0, 1, generator) < self.p else image


def draw_uniform(low: float, high: float, generator: Generator) -> float:
    """Draw a number between low and high."""
    return low + (high - low) * float(torch.rand((), generator=generator, dtype=torch.float64))


def draw_integer(stop: int, generator: Generator) -> int:
    """Draw one of 0..stop-1."""
    return int(torch.randint(stop, (), generator=generator))
