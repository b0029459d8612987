"""A query and its neighbors as one image, with frames for correct and wrong neighbors."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from PIL import Image, ImageDraw

from kinfold.files.atomic import write_atomic
from kinfold.files.paths import check_parent
from kinfold.report.drawable_text import draw_text, make_drawable, measure_width, shorten_label

Mark = Literal["query", "right", "wrong", "unknown"]
Color = tuple[int, int, int]

SIDE = 144  # pixels of an image
FRAME = 8  # space for its frame, on every side
GAP = 8
LINE = 18  # height of a line of text
PAPER: Color = (255, 255, 255)
NEUTRAL: Color = (128, 128, 128)
# blue and orange are safe for color blindness; dark and solid against light and dashed also works in grayscale
RIGHT: Color = (0, 72, 136)
WRONG: Color = (230, 126, 20)
LEGEND: tuple[tuple[Mark, str], ...] = (("right", "the class of the query"), ("wrong", "another class"))


@dataclass(frozen=True)
class GridPicture:
    """One image with lines of text below it.

    Args:
        lines: The text; it takes the place of the image if there is none.
        picture: The image.
        mark: Its frame.
    """

    lines: tuple[str, ...]
    picture: Image.Image | None = None
    mark: Mark = "unknown"


def draw_grid(query: GridPicture, neighbors: Sequence[GridPicture], path: Path | str) -> None:
    """Write a query and its neighbors, row by row, as a PNG file, completely or not at all.

    Frames are thin gray for the query and for unknown classes, thick solid blue for "right", dashed orange for
    "wrong". Long lines are shortened. A character that no font has is written as its code point, such as U+4E2D.

    Args:
        query: The query.
        neighbors: Its neighbors, nearest first.
        path: The .png file.

    Raises:
        ValueError: The name does not end with .png, or its folder does not exist.
    """
    path = Path(path)
    if path.suffix.lower() != ".png":
        raise ValueError(f"a picture grid is a .png file, got {path.name!r}")
    check_parent(path)
    tiles = [query, *neighbors]
    columns = min(len(tiles), max(6, math.ceil(math.sqrt(1.5 * len(tiles)))))
    width = SIDE + 2 * FRAME + GAP
    text_lines = max(len(tile.lines) * (tile.picture is not None) for tile in tiles)
    height = SIDE + 2 * FRAME + GAP + LINE * text_lines
    has_legend = any(tile.mark in ("right", "wrong") for tile in neighbors)
    size = (max(columns, 3) * width + GAP, -(-len(tiles) // columns) * height + GAP + (LINE + GAP) * has_legend)
    page = Image.new("RGB", size, PAPER)
    draw = ImageDraw.Draw(page)
    for number, tile in enumerate(tiles):
        _draw_tile(page, draw, tile, GAP + number % columns * width, GAP + number // columns * height)
    if has_legend:
        _draw_legend(draw, size[1] - LINE - GAP)
    write_atomic(path, lambda file: page.save(file, format="PNG"))


def _draw_tile(page: Image.Image, draw: ImageDraw.ImageDraw, tile: GridPicture, left: int, top: int) -> None:
    inside = (left + FRAME, top + FRAME)
    lines = [shorten_label(make_drawable(line), SIDE + FRAME) for line in tile.lines]
    if tile.picture is None:
        draw.rectangle((*inside, inside[0] + SIDE - 1, inside[1] + SIDE - 1), fill=(240, 240, 240))
        first = inside[1] + (SIDE - LINE * len(lines)) // 2
        for number, line in enumerate(lines):
            shorter = shorten_label(line, SIDE - 8)
            draw_text(draw, shorter, inside[0] + (SIDE - measure_width(shorter)) / 2, first + number * LINE)
    else:
        picture = _fit(tile.picture)
        page.paste(picture, (inside[0] + (SIDE - picture.width) // 2, inside[1] + (SIDE - picture.height) // 2))
        for number, line in enumerate(lines):
            draw_text(draw, line, inside[0], top + SIDE + 2 * FRAME + number * LINE)
    side = SIDE + 2 * FRAME
    _draw_frame(draw, tile.mark, (left, top, left + side - 1, top + side - 1))


def _fit(picture: Image.Image) -> Image.Image:
    """Resize to the side of a tile; small images by an integer factor, so that their pixels stay sharp."""
    longest = max(picture.size)
    if longest <= SIDE // 2:
        factor = SIDE // longest
        larger = picture.resize((picture.width * factor, picture.height * factor), Image.Resampling.NEAREST)
        return larger.convert("RGB")
    size = (max(1, round(picture.width * SIDE / longest)), max(1, round(picture.height * SIDE / longest)))
    return picture.convert("RGB").resize(size, Image.Resampling.LANCZOS)


def _draw_frame(draw: ImageDraw.ImageDraw, mark: Mark, box: tuple[int, int, int, int]) -> None:
    if mark == "right":
        draw.rectangle(box, outline=RIGHT, width=6)
    elif mark == "wrong":
        _draw_dashes(draw, box)
    else:
        draw.rectangle(box, outline=NEUTRAL, width=3 if mark == "query" else 1)


def _draw_dashes(draw: ImageDraw.ImageDraw, box: tuple[int, int, int, int], dash: int = 10, width: int = 4) -> None:
    left, top, right, bottom = box
    for start in range(left, right, 2 * dash):
        end = min(start + dash - 1, right)
        draw.rectangle((start, top, end, top + width - 1), fill=WRONG)
        draw.rectangle((start, bottom - width + 1, end, bottom), fill=WRONG)
    for start in range(top, bottom, 2 * dash):
        end = min(start + dash - 1, bottom)
        draw.rectangle((left, start, left + width - 1, end), fill=WRONG)
        draw.rectangle((right - width + 1, start, right, end), fill=WRONG)


def _draw_legend(draw: ImageDraw.ImageDraw, top: int) -> None:
    left = float(GAP)
    for mark, meaning in LEGEND:
        _draw_frame(draw, mark, (int(left), top, int(left) + 34, top + LINE - 2))
        draw_text(draw, meaning, left + 42, top)
        left += 42 + measure_width(meaning) + 3 * GAP
