"""Opening images: known formats only, regular files only, transparent pixels over a background color."""

import io
import os
import stat
import struct
import zlib
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, Literal

import numpy as np
from PIL import Image, ImageColor, UnidentifiedImageError

from kinfold import registry

Mode = Literal["RGB", "L"]
Color = tuple[int, int, int]
BACKGROUND = "white"
# What Pillow may read. Its other decoders are never tried: the one of EPS files starts Ghostscript.
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
# what Pillow's decoders raise for damaged files and decompression bombs
_DAMAGE = (
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
    """An image cannot be read. The message gives its row, its path and the reason."""


def open_image(source: Path | str | bytes, name: str | None = None) -> Image.Image:
    """Decode an image file, or the bytes of one, and leave its pixels as they are stored.

    Args:
        source: Path of a regular file, or the content of such a file.
        name: Name of the image in error messages; its path if left out.

    Returns:
        The decoded image in the mode of the file; the first frame of an animation.

    Raises:
        ImageError: The file is missing, is a pipe, a device or a folder, has a format that is not in `FORMATS`, or is
            damaged.
    """
    if isinstance(source, bytes):
        return _decode(io.BytesIO(source), len(source), name or "the image")
    name = name or str(source)
    try:
        with open(source, "rb", opener=_open_nonblocking) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise ImageError(f"{name} is not a regular file")
            return _decode(file, status.st_size, name)
    except FileNotFoundError:
        raise ImageError(f"{name} is missing") from None
    except IsADirectoryError:
        raise ImageError(f"{name} is a folder, not an image") from None
    except OSError as error:
        raise ImageError(f"{name} cannot be opened: {error.strerror or error}") from None


def flatten(image: Image.Image, mode: Mode = "RGB", background: str = BACKGROUND) -> Image.Image:
    """Convert an image of any mode to 8-bit color ("RGB") or gray ("L"), over a background of one color.

    Colors of fully transparent pixels are ignored.

    Examples:
        >>> flatten(Image.new("RGBA", (1, 1), (255, 0, 0, 0))).getpixel((0, 0))
        (255, 255, 255)
    """
    image = _to_eight_bits(image)
    layer = _convert_transparent(image)
    if layer is not None:
        image = Image.alpha_composite(Image.new("RGBA", image.size, (*parse_background(background), 255)), layer)
    return image if image.mode == mode else image.convert(mode)


def is_transparent(image: Image.Image) -> bool:
    """Whether any pixel is not opaque."""
    return _convert_transparent(_to_eight_bits(image)) is not None


@lru_cache
def parse_background(background: str) -> Color:
    """Return red, green and blue of a color such as "white", "black" or "#f0f0f0".

    Examples:
        >>> parse_background("black"), parse_background("#ff8000")
        ((0, 0, 0), (255, 128, 0))
    """
    try:
        if background.startswith("#") or background.lower() in ImageColor.colormap:
            color = ImageColor.getrgb(background)
            if len(color) == 3:  # a fourth number is opacity
                return color
    except ValueError:  # no number after '#'
        pass
    near = registry.suggest(background, ImageColor.colormap)
    raise ValueError(f"unknown background {background!r}{near}; give a name such as 'white', or '#rrggbb'")


def _open_nonblocking(path: str, flags: int) -> int:
    # opening a pipe would wait until somebody writes into it
    return os.open(path, flags | os.O_NONBLOCK)


def _decode(file: BinaryIO, size: int, name: str) -> Image.Image:
    try:
        with Image.open(file, formats=FORMATS) as image:
            is_16_bit = ";16" in str(image.tile)
            image.load()  # the pixels outlive the file
    except UnidentifiedImageError:
        if size == 0:
            raise ImageError(f"{name} has zero bytes") from None
        raise ImageError(f"{name} is not an image in one of the formats {', '.join(FORMATS)}") from None
    except _DAMAGE as error:
        raise ImageError(f"{name} is corrupt: {error}") from None
    if image.mode == "F" or (image.mode == "I" and image.format not in ("PNG", "PPM")):
        raise ImageError(f"{name} has 32 bits per pixel, of which no range is known; save it with 8 or 16 bits")
    key = image.info.get("transparency")
    if is_16_bit and image.mode == "RGB" and isinstance(key, tuple):
        # Pillow keeps the upper 8 of 16 bits of a pixel, but all bits of the color that is transparent
        image.info["transparency"] = tuple(value >> 8 for value in key)
    return image


def _to_eight_bits(image: Image.Image) -> Image.Image:
    """Keep the upper 8 of 16 bits; `Image.convert` would clip them to 255."""
    if not image.mode.startswith("I"):
        if image.mode == "F":
            raise ImageError("an image of floats has no known range; convert it to 8 or 16 bits")
        return image
    values = np.asarray(image)
    if values.size and not (values.min() >= 0 and values.max() < 1 << 16):
        raise ImageError("an image of integers has values outside of 0..65535; convert it to 8 or 16 bits")
    gray = Image.fromarray((values >> 8).astype(np.uint8))
    key = image.info.get("transparency")
    if isinstance(key, int):
        gray.putalpha(Image.fromarray(np.where(values == key, 0, 255).astype(np.uint8)))
    return gray


def _convert_transparent(image: Image.Image) -> Image.Image | None:
    """Return the image as RGBA if any pixel is not opaque, else None."""
    keyed = image.mode in ("1", "L", "P", "RGB") and "transparency" in image.info
    palette = image.mode == "P" and image.palette is not None and image.palette.mode.endswith("A")
    if not (keyed or palette or image.mode in ("RGBA", "LA", "PA", "RGBa", "La")):
        return None
    if image.mode == "La":
        image = image.convert("LA")
    layer = image if image.mode == "RGBA" else image.convert("RGBA")
    lowest, _ = layer.getchannel("A").getextrema()
    return layer if lowest < 255 else None  # type: ignore[operator]  # one channel has one pair of numbers
