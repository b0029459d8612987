"""Thumbnails of items in sprite sheets: a few large images that hold thousands of small ones."""

import base64
import io
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps, features

from kinfold.data import Dataset, decode
from kinfold.data.image_reading import BACKGROUND, ImageError
from kinfold.data.items import Array, Items, Rows
from kinfold.files.cache import load_or_compute
from kinfold.files.checksums import digest_parts
from kinfold.report.content.path_redaction import is_inside

TILE = 48  # pixels
COLUMNS = 64
ROWS = 16  # of one sheet
MAX_COUNT = 10_000
QUALITY = 75
EMPTY = (128, 128, 128)


class Thumbnails:
    """Collects requests for thumbnails, most important first, then draws as many as fit.

    Datasets are known by their identity.

    Args:
        max_count: How many thumbnails to draw at most.

    Attributes:
        outside: Number of images outside of the folder of their dataset, which are not drawn.
        unreadable: Number of images that cannot be read.
        refused: Number of requests beyond `max_count`.
    """

    def __init__(self, max_count: int = MAX_COUNT) -> None:
        self.max_count = max_count
        self._requests: dict[tuple[str, int], tuple[Dataset, str]] = {}  # identity, item -> dataset, background
        self._sprites: dict[tuple[str, int], int] = {}
        self.outside = 0
        self.unreadable = 0
        self.refused = 0

    def request(self, identity: str, dataset: Dataset, items: Iterable[int], background: str = BACKGROUND) -> None:
        """Ask for the thumbnails of items of a dataset; nothing happens if its items have no images."""
        if get_images(dataset) is None:
            return
        for item in items:
            if (identity, item) not in self._requests:
                if len(self._requests) < self.max_count:
                    self._requests[identity, item] = (dataset, background)
                else:
                    self.refused += 1

    def draw(self, folder: Path | None) -> dict[str, Any] | None:
        """Draw the sheets, or load them from the cache of the folder; None if there is nothing to draw.

        Args:
            folder: Where sheets are cached; None draws them anew.
        """
        if not self._requests:
            return None
        key = digest_parts(f"{identity} {item} {ground}" for (identity, item), (_, ground) in self._requests.items())
        key = f"{key} {TILE} {QUALITY} {_get_format()}"
        drawing = (
            self._draw_sheets()
            if folder is None
            else load_or_compute(folder, "report-thumbnails", key, self._draw_sheets)
        )
        self.outside, self.unreadable = drawing["outside"], drawing["unreadable"]
        self._sprites = dict(zip(self._requests, drawing["index"].tolist(), strict=True))
        count = int((drawing["index"] >= 0).sum())
        if not count:
            return None
        prefix = f"data:image/{_get_format().lower()};base64,"
        sheets = [prefix + base64.b64encode(sheet.numpy().tobytes()).decode("ascii") for sheet in drawing["sheets"]]
        return {"tile": TILE, "columns": COLUMNS, "count": count, "sheets": sheets}

    def get_sprites(self, identity: str, count: int) -> Array | None:
        """Return the sprite number of each item of a dataset, -1 for none; None if no item has a thumbnail."""
        sprites = {item: sprite for (name, item), sprite in self._sprites.items() if name == identity and sprite >= 0}
        if not sprites:
            return None
        numbers = np.full(count, -1)
        numbers[[*sprites]] = [*sprites.values()]
        return numbers

    def _draw_sheets(self) -> dict[str, Any]:
        outside = unreadable = 0
        tiles: list[Image.Image] = []
        index = torch.full((len(self._requests),), -1)
        with ThreadPoolExecutor(max_workers=2) as pool:
            requests = [(dataset, item, ground) for (_, item), (dataset, ground) in self._requests.items()]
            for number, tile in enumerate(pool.map(lambda request: _draw_tile(*request), requests)):
                if isinstance(tile, Image.Image):
                    index[number] = len(tiles)
                    tiles.append(tile)
                elif tile == "outside":
                    outside += 1
                else:
                    unreadable += 1
        size = COLUMNS * ROWS
        sheets = [_encode_sheet(tiles[start : start + size]) for start in range(0, len(tiles), size)]
        return {"index": index, "sheets": sheets, "outside": outside, "unreadable": unreadable}


def get_images(dataset: Dataset) -> Items | None:
    """Return the items of a dataset if they are images, or the pictures of its feature rows; None without either."""
    if len(dataset) > 0 and getattr(dataset.items[0], "ndim", 2) > 1:
        return dataset.items
    return dataset.items.pictures if isinstance(dataset.items, Rows) else None


def _draw_tile(dataset: Dataset, item: int, background: str) -> "Image.Image | str":
    images = get_images(dataset)
    assert images is not None
    if not is_inside(images, item):
        return "outside"
    try:
        image = decode(images[item], background=background)
    except (ImageError, OSError):
        return "unreadable"
    return ImageOps.pad(image, (TILE, TILE), Image.Resampling.BICUBIC, color=EMPTY)


def _encode_sheet(tiles: list[Image.Image]) -> torch.Tensor:
    """Bytes of the image file."""
    sheet = Image.new("RGB", (TILE * min(COLUMNS, len(tiles)), TILE * -(-len(tiles) // COLUMNS)), EMPTY)
    for number, tile in enumerate(tiles):
        sheet.paste(tile, (TILE * (number % COLUMNS), TILE * (number // COLUMNS)))
    file = io.BytesIO()
    options: dict[str, Any] = {"method": 4} if _get_format() == "WEBP" else {"optimize": True}
    sheet.save(file, _get_format(), quality=QUALITY, **options)
    return torch.frombuffer(bytearray(file.getvalue()), dtype=torch.uint8)


def _get_format() -> str:
    return "WEBP" if features.check("webp") else "JPEG"
