"""Random changes of color: gray, brightness, contrast, saturation, hue, as torchvision does them with Pillow."""

from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image, ImageEnhance
from torch import Generator

from kinfold.data.transforms import draw_uniform


@dataclass(frozen=True)
class RandomGray:
    """Convert an image to gray in all channels, at random.

    Args:
        p: Probability of the conversion.
    """

    p: float = 0.2

    def __call__(self, image: Image.Image, generator: Generator) -> Image.Image:
        return image.convert("L").convert(image.mode) if draw_uniform(0, 1, generator) < self.p else image


@dataclass(frozen=True)
class ColorJitter:
    """Change brightness, contrast, saturation and hue, in a random order.

    Args:
        brightness, contrast, saturation: x draws a factor from [1 - x, 1 + x].
        hue: x draws a shift from [-x, x], as a fraction of the color circle; at most 0.5.

    Raises:
        ValueError: A strength is negative, or `hue` is above 0.5.
    """

    brightness: float = 0.0
    contrast: float = 0.0
    saturation: float = 0.0
    hue: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.hue <= 0.5:
            raise ValueError(f"hue must lie in [0, 0.5] (half of the color circle), got {self.hue}")
        if min(self.brightness, self.contrast, self.saturation) < 0:
            raise ValueError("brightness, contrast and saturation must not be negative")

    def __call__(self, image: Image.Image, generator: Generator) -> Image.Image:
        for change in torch.randperm(4, generator=generator).tolist():
            if change == 0 and self.brightness:
                image = ImageEnhance.Brightness(image).enhance(_draw_factor(self.brightness, generator))
            elif change == 1 and self.contrast:
                image = ImageEnhance.Contrast(image).enhance(_draw_factor(self.contrast, generator))
            elif change == 2 and self.saturation:
                image = ImageEnhance.Color(image).enhance(_draw_factor(self.saturation, generator))
            elif change == 3 and self.hue:
                image = shift_hue(image, draw_uniform(-self.hue, self.hue, generator))
        return image


def shift_hue(image: Image.Image, shift: float) -> Image.Image:
    """Shift every color by a fraction of the color circle; a gray image stays as it is.

    Examples:
        >>> shift_hue(Image.new("RGB", (1, 1), (255, 0, 0)), 1 / 3).getpixel((0, 0))[1] > 250
        True
    """
    if image.mode != "RGB":
        return image
    hue, saturation, value = image.convert("HSV").split()
    shifted = (np.asarray(hue).astype(np.int16) + int(shift * 255)) % 256  # a byte holds the whole circle
    return Image.merge("HSV", (Image.fromarray(shifted.astype(np.uint8)), saturation, value)).convert("RGB")


def _draw_factor(strength: float, generator: Generator) -> float:
    return draw_uniform(max(0.0, 1 - strength), 1 + strength, generator)
