"""A query and its neighbours as one picture: what the space takes for alike, and where it is wrong."""

import importlib.util
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from PIL import Image, ImageDraw, ImageFont

from kinfold.files.atomic import write_atomic

Mark = Literal["query", "right", "wrong", "unknown"]
Font = ImageFont.FreeTypeFont | ImageFont.ImageFont
Colour = tuple[int, int, int]

SIDE = 144  # pixels of a picture
FRAME = 8  # room for its frame, on every side
GAP = 8
TEXT = 14  # pixels of the type
LINE = 18
PAPER: Colour = (255, 255, 255)
INK: Colour = (32, 32, 32)
NEUTRAL: Colour = (128, 128, 128)
# blue and orange are told apart without red and green; dark and solid against light and dashed, without any colour
RIGHT: Colour = (0, 72, 136)
WRONG: Colour = (230, 126, 20)
LEGEND = (("right", "the class of the query"), ("wrong", "another class"))


@dataclass(frozen=True)
class Tile:
    """One picture with lines of text below; without a picture its lines stand in the place of one."""

    lines: tuple[str, ...]
    picture: Image.Image | None = None
    mark: Mark = "unknown"


def draw_grid(query: Tile, neighbours: Sequence[Tile], path: Path | str) -> None:
    """Write the query and then its neighbours, row by row, as a PNG file; it appears whole or not at all.

    Frames: thin grey for the query and where nothing is known, thick solid blue for `right`, dashed orange for `wrong`.
    Long lines are shortened, and a character that no font at hand has is written as its code point, U+4E2D.
    """
    path = Path(path)
    if path.suffix.lower() != ".png":
        raise ValueError(f"a picture grid is a .png file, got {path.name!r}")
    if not path.parent.is_dir():
        raise ValueError(f"there is no folder {path.parent} to write {path.name} to")
    tiles = [query, *neighbours]
    columns = min(len(tiles), max(6, math.ceil(math.sqrt(1.5 * len(tiles)))))
    width = SIDE + 2 * FRAME + GAP
    below = max(len(tile.lines) * (tile.picture is not None) for tile in tiles)
    height = SIDE + 2 * FRAME + GAP + LINE * below
    known = any(tile.mark in ("right", "wrong") for tile in neighbours)
    size = (max(columns, 3) * width + GAP, -(-len(tiles) // columns) * height + GAP + (LINE + GAP) * known)
    page = Image.new("RGB", size, PAPER)
    draw = ImageDraw.Draw(page)
    for place, tile in enumerate(tiles):
        _place(page, draw, tile, GAP + place % columns * width, GAP + place // columns * height)
    if known:
        _legend(draw, size[1] - LINE - GAP)
    _save(page, path)


def shorten_label(text: str, width: float) -> str:
    """The text, or its beginning and dots, no wider than `width` pixels.

    >>> shortened("robin", 100), shortened("001.Black_footed_Albatross", 100)
    ('robin', '001.Black_f...')
    """
    if _width(text) <= width:
        return text
    kept = 0
    while kept < len(text) and _width(text[: kept + 1] + "...") <= width:
        kept += 1
    return text[:kept] + "..."


def readable(text: str) -> str:
    """The text with every character that cannot be drawn written as its code point.

    >>> readable("wren\\n\\ue000")
    'wrenU+000AU+E000'
    """
    return "".join(letter if _font(letter) is not None else f"U+{ord(letter):04X}" for letter in text)


def _place(page: Image.Image, draw: ImageDraw.ImageDraw, tile: Tile, left: int, upper: int) -> None:
    inside = (left + FRAME, upper + FRAME)
    lines = [shorten_label(readable(line), SIDE + FRAME) for line in tile.lines]
    if tile.picture is None:
        draw.rectangle((*inside, inside[0] + SIDE - 1, inside[1] + SIDE - 1), fill=(240, 240, 240))
        top = inside[1] + (SIDE - LINE * len(lines)) // 2
        for number, line in enumerate(lines):
            shorter = shorten_label(line, SIDE - 8)
            _write(draw, shorter, inside[0] + (SIDE - _width(shorter)) / 2, top + number * LINE)
    else:
        picture = _fitted(tile.picture)
        page.paste(picture, (inside[0] + (SIDE - picture.width) // 2, inside[1] + (SIDE - picture.height) // 2))
        for number, line in enumerate(lines):
            _write(draw, line, inside[0], upper + SIDE + 2 * FRAME + number * LINE)
    side = SIDE + 2 * FRAME
    _frame(draw, tile.mark, (left, upper, left + side - 1, upper + side - 1))


def _fitted(picture: Image.Image) -> Image.Image:
    """As large as the place allows: whole multiples of small pictures, so that their pixels stay sharp."""
    longest = max(picture.size)
    if longest <= SIDE // 2:
        times = SIDE // longest
        grown = picture.resize((picture.width * times, picture.height * times), Image.Resampling.NEAREST)
        return grown.convert("RGB")
    size = (max(1, round(picture.width * SIDE / longest)), max(1, round(picture.height * SIDE / longest)))
    return picture.convert("RGB").resize(size, Image.Resampling.LANCZOS)


def _frame(draw: ImageDraw.ImageDraw, mark: Mark, box: tuple[int, int, int, int]) -> None:
    if mark == "right":
        draw.rectangle(box, outline=RIGHT, width=6)
    elif mark == "wrong":
        _dashed(draw, box)
    else:
        draw.rectangle(box, outline=NEUTRAL, width=3 if mark == "query" else 1)


def _dashed(draw: ImageDraw.ImageDraw, box: tuple[int, int, int, int], dash: int = 10, width: int = 4) -> None:
    left, upper, right, lower = box
    for start in range(left, right, 2 * dash):
        end = min(start + dash - 1, right)
        draw.rectangle((start, upper, end, upper + width - 1), fill=WRONG)
        draw.rectangle((start, lower - width + 1, end, lower), fill=WRONG)
    for start in range(upper, lower, 2 * dash):
        end = min(start + dash - 1, lower)
        draw.rectangle((left, start, left + width - 1, end), fill=WRONG)
        draw.rectangle((right - width + 1, start, right, end), fill=WRONG)


def _legend(draw: ImageDraw.ImageDraw, upper: int) -> None:
    left = float(GAP)
    for mark, meaning in LEGEND:
        box = (int(left), upper, int(left) + 34, upper + LINE - 2)
        _frame(draw, mark, box)  # type: ignore[arg-type]  # the marks of LEGEND are marks
        _write(draw, meaning, left + 42, upper)
        left += 42 + _width(meaning) + 3 * GAP


def _write(draw: ImageDraw.ImageDraw, text: str, left: float, upper: float) -> None:
    for letter in text:
        font = _font(letter)
        if font is None:
            continue
        draw.text((left, upper), letter, fill=INK, font=font)
        left += font.getlength(letter)


def _width(text: str) -> float:
    return sum(font.getlength(letter) for letter in text if (font := _font(letter)) is not None)


@cache
def _font(letter: str) -> Font | None:
    """The first font that has the letter; None where none has it, or where it is no letter at all."""
    if not letter.isprintable():
        return None
    return next((font for font, missing in _fonts() if _drawn(font, letter) not in (None, missing)), None)


@cache
def _fonts() -> tuple[tuple[Font, bytes | None], ...]:
    """Pillow's own font, then one with more letters where matplotlib brings it; each with what it draws for none."""
    fonts: list[Font] = [ImageFont.load_default(TEXT)]
    found = importlib.util.find_spec("matplotlib")  # its folder is enough: nothing of it is imported
    for place in (found.submodule_search_locations or ()) if found else ():
        file = Path(place) / "mpl-data" / "fonts" / "ttf" / "DejaVuSans.ttf"
        if file.is_file() and isinstance(fonts[0], ImageFont.FreeTypeFont):
            fonts.append(ImageFont.truetype(str(file), TEXT - 1, layout_engine=ImageFont.Layout.BASIC))
    return tuple((font, _drawn(font, "\uffff")) for font in fonts)


def _drawn(font: Font, letter: str) -> bytes | None:
    if letter == " ":
        return b" "  # nothing to see, and still there
    try:
        mask = font.getmask(letter)
    except (UnicodeError, OSError, ValueError):  # the plain font of a Pillow without FreeType knows 256 letters
        return None
    return bytes(mask)


def _save(page: Image.Image, path: Path) -> None:
    write_atomic(path, lambda file: page.save(file, format="PNG"))
