"""Random changes of colour: grey, brightness, contrast, saturation, hue, as in torchvision's Pillow path."""

from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image, ImageEnhance
from torch import Generator

from kinfold.data.transforms import draw_uniform


@dataclass(frozen=True)
class RandomGray:
    """Grey in all channels with probability `p`."""

    p: float = 0.2

    def __call__(self, image: Image.Image, generator: Generator) -> Image.Image:
        return image.convert("L").convert(image.mode) if draw_uniform(0, 1, generator) < self.p else image


@dataclass(frozen=True)
class ColorJitter:
    """Brightness, contrast and saturation by factors from [1 - x, 1 + x], hue by a turn from [-x, x]; in any order."""

    brightness: float = 0.0
    contrast: float = 0.0
    saturation: float = 0.0
    hue: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.hue <= 0.5:
            raise ValueError(f"hue must lie in [0, 0.5] (half a turn of the colour circle), got {self.hue}")
        if min(self.brightness, self.contrast, self.saturation) < 0:
            raise ValueError("brightness, contrast and saturation must not be negative")

    def __call__(self, image: Image.Image, generator: Generator) -> Image.Image:
        for change in torch.randperm(4, generator=generator).tolist():
            if change == 0 and self.brightness:
                image = ImageEnhance.Brightness(image).enhance(_factor(self.brightness, generator))
            elif change == 1 and self.contrast:
                image = ImageEnhance.Contrast(image).enhance(_factor(self.contrast, generator))
            elif change == 2 and self.saturation:
                image = ImageEnhance.Color(image).enhance(_factor(self.saturation, generator))
            elif change == 3 and self.hue:
                image = shift_hue(image, draw_uniform(-self.hue, self.hue, generator))
        return image


def shift_hue(image: Image.Image, turn: float) -> Image.Image:
    """Every colour turned round the colour circle by a part of it; a grey image stays as it is.

    >>> shift_hue(Image.new("RGB", (1, 1), (255, 0, 0)), 1 / 3).getpixel((0, 0))[1] > 250
    True
    """
    if image.mode != "RGB":
        return image
    hue, saturation, value = image.convert("HSV").split()
    turned = (np.asarray(hue).astype(np.int16) + int(turn * 255)) % 256  # a byte holds the whole circle
    return Image.merge("HSV", (Image.fromarray(turned.astype(np.uint8)), saturation, value)).convert("RGB")


def _factor(strength: float, generator: Generator) -> float:
    return draw_uniform(max(0.0, 1 - strength), 1 + strength, generator)
