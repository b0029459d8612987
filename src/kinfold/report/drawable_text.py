"""Text that can be drawn with the fonts at hand, whatever characters a name has."""

import importlib.util
from functools import cache
from pathlib import Path

from PIL import ImageDraw, ImageFont

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

FONT_SIZE = 14  # pixels
INK = (32, 32, 32)


def shorten_label(text: str, width: float) -> str:
    """Return the text, or its beginning and dots, no wider than `width` pixels.

    Examples:
        >>> shorten_label("robin", 100), shorten_label("001.Black_footed_Albatross", 100)
        ('robin', '001.Black_f...')
    """
    if measure_width(text) <= width:
        return text
    count = 0
    while count < len(text) and measure_width(text[: count + 1] + "...") <= width:
        count += 1
    return text[:count] + "..."


def make_drawable(text: str) -> str:
    """Return the text with its code point for every character that no font can draw.

    Examples:
        >>> make_drawable("wren\\n\\ue000")
        'wrenU+000AU+E000'
    """
    return "".join(letter if find_font(letter) is not None else f"U+{ord(letter):04X}" for letter in text)


def draw_text(draw: ImageDraw.ImageDraw, text: str, left: float, top: float) -> None:
    """Draw one line of text, each character with the first font that has it."""
    for letter in text:
        font = find_font(letter)
        if font is None:
            continue
        draw.text((left, top), letter, fill=INK, font=font)
        left += font.getlength(letter)


def measure_width(text: str) -> float:
    """Return the width of a text in pixels."""
    return sum(font.getlength(letter) for letter in text if (font := find_font(letter)) is not None)


@cache
def find_font(letter: str) -> Font | None:
    """Return the first font that has a character; None if none has it, or if it cannot be printed."""
    if not letter.isprintable():
        return None
    return next((font for font, blank in load_fonts() if _render(font, letter) not in (None, blank)), None)


@cache
def load_fonts() -> tuple[tuple[Font, bytes | None], ...]:
    """Load the font of Pillow, and that of matplotlib with more characters if it is installed.

    Returns:
        Each font with what it draws for a character that it does not have.
    """
    fonts: list[Font] = [ImageFont.load_default(FONT_SIZE)]
    matplotlib = importlib.util.find_spec("matplotlib")  # it is not imported, only its folder is used
    for folder in (matplotlib.submodule_search_locations or ()) if matplotlib else ():
        file = Path(folder) / "mpl-data" / "fonts" / "ttf" / "DejaVuSans.ttf"
        if file.is_file() and isinstance(fonts[0], ImageFont.FreeTypeFont):
            fonts.append(ImageFont.truetype(str(file), FONT_SIZE - 1, layout_engine=ImageFont.Layout.BASIC))
    return tuple((font, _render(font, "\uffff")) for font in fonts)


def _render(font: Font, letter: str) -> bytes | None:
    if letter == " ":
        return b" "  # its image is empty, but the font has it
    try:
        mask = font.getmask(letter)
    except (UnicodeError, OSError, ValueError):  # the font of a Pillow without FreeType has 256 characters
        return None
    return bytes(mask)
