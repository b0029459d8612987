"""Small pictures of items in a few large ones: sprite sheets, which a page can hold by the thousand."""

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
from kinfold.data.items import Array
from kinfold.files.cache import load_or_compute
from kinfold.files.checksums import digest_parts
from kinfold.report.content.path_redaction import inside

TILE = 48
COLUMNS = 64
ROWS = 16  # of one sheet
MOST = 10_000
QUALITY = 75
EMPTY = (128, 128, 128)


class Thumbnails:
    """Collects what is wanted, most wanted first, then draws what there is room for. Data sets go by their identity."""

    def __init__(self, most: int = MOST) -> None:
        self.most = most
        self._wanted: dict[tuple[str, int], tuple[Dataset, str]] = {}  # with the background
        self._index: dict[tuple[str, int], int] = {}
        self.outside = 0
        self.unreadable = 0
        self.refused = 0  # for want of room

    def want(self, identity: str, dataset: Dataset, places: Iterable[int], background: str = BACKGROUND) -> None:
        if not pictured(dataset):
            return
        for place in places:
            if (identity, place) not in self._wanted:
                if len(self._wanted) < self.most:
                    self._wanted[identity, place] = (dataset, background)
                else:
                    self.refused += 1

    def draw(self, folder: Path) -> dict[str, Any] | None:
        """The sheets, kept in the folder; None where there is nothing to draw."""
        if not self._wanted:
            return None
        key = digest_parts(f"{identity} {place} {ground}" for (identity, place), (_, ground) in self._wanted.items())
        found = load_or_compute(folder, "report-thumbnails", f"{key} {TILE} {QUALITY} {_format()}", self._sheets)
        self.outside, self.unreadable = found["outside"], found["unreadable"]
        self._index = dict(zip(self._wanted, found["index"].tolist(), strict=True))
        count = int((found["index"] >= 0).sum())
        if not count:
            return None
        kind = f"data:image/{_format().lower()};base64,"
        sheets = [kind + base64.b64encode(sheet.numpy().tobytes()).decode("ascii") for sheet in found["sheets"]]
        return {"tile": TILE, "columns": COLUMNS, "count": count, "sheets": sheets}

    def indices(self, identity: str, count: int) -> Array | None:
        """The picture of each item of a data set, -1 where there is none; None where no item has one."""
        own = {place: index for (known, place), index in self._index.items() if known == identity and index >= 0}
        if not own:
            return None
        found = np.full(count, -1)
        found[[*own]] = [*own.values()]
        return found

    def _sheets(self) -> dict[str, Any]:
        wanted = [*self._wanted.items()]
        outside = unreadable = 0
        tiles: list[Image.Image] = []
        index = torch.full((len(wanted),), -1)
        with ThreadPoolExecutor(max_workers=2) as pool:
            made = pool.map(lambda entry: _tile(entry[1][0], entry[0][1], entry[1][1]), wanted)
            for number, found in enumerate(made):
                if isinstance(found, Image.Image):
                    index[number] = len(tiles)
                    tiles.append(found)
                elif found == "outside":
                    outside += 1
                else:
                    unreadable += 1
        each = COLUMNS * ROWS
        sheets = [_sheet(tiles[start : start + each]) for start in range(0, len(tiles), each)]
        return {"index": index, "sheets": sheets, "outside": outside, "unreadable": unreadable}


def pictured(dataset: Dataset) -> bool:
    """Whether its items can be looked at: features cannot."""
    return len(dataset) > 0 and getattr(dataset.items[0], "ndim", 2) > 1


def _tile(dataset: Dataset, place: int, background: str) -> "Image.Image | str":
    if not inside(dataset.items, place):
        return "outside"
    try:
        picture = decode(dataset.items[place], background=background)
    except (ImageError, OSError):
        return "unreadable"
    return ImageOps.pad(picture, (TILE, TILE), Image.Resampling.BICUBIC, color=EMPTY)


def _sheet(tiles: list[Image.Image]) -> torch.Tensor:
    """Encoded, as bytes."""
    page = Image.new("RGB", (TILE * min(COLUMNS, len(tiles)), TILE * -(-len(tiles) // COLUMNS)), EMPTY)
    for number, tile in enumerate(tiles):
        page.paste(tile, (TILE * (number % COLUMNS), TILE * (number // COLUMNS)))
    file = io.BytesIO()
    page.save(file, _format(), quality=QUALITY, **({"method": 4} if _format() == "WEBP" else {"optimize": True}))
    return torch.frombuffer(bytearray(file.getvalue()), dtype=torch.uint8)


def _format() -> str:
    return "WEBP" if features.check("webp") else "JPEG"
