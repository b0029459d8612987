"""Glyphs, the embedded data set: characters as classes, typefaces as instances, drawn from the fonts of matplotlib.

Which faces, characters and classes there are, and which of them train, stands in `glyphs.json`: drawing never decides.
"""

import hashlib
import json
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont

from kinfold.data.dataset import Dataset
from kinfold.data.items import Array, Rows

MANIFEST = Path(__file__).with_name("glyphs.json")
SIZE = 28
_EM = 19  # pixels of the type size
_BASELINE = 20  # pixels from the top

Font = ImageFont.FreeTypeFont


def glyphs(fonts: Path | str | None = None) -> Dataset:
    """Characters in up to 22 typefaces, ink 255 on 0, 28 x 28 pixels; half of the classes train, the others test.

    `fonts` is the folder of the font files, by default that of the installed matplotlib. Drawing takes a few seconds;
    the same process draws once.
    """
    folder = _fonts_of_matplotlib() if fonts is None else Path(fonts)
    images, labels = _drawn(str(folder))
    names, split = _names(), np.array([entry[2] for entry in _manifest()["classes"]])
    return Dataset("glyphs", Rows(images), torch.from_numpy(labels), names, split[labels])


def draw_character(font: Font, code: int) -> Array:
    """One character, (28, 28) uint8, on a common baseline, so that a comma is not an apostrophe."""
    page = Image.new("L", (SIZE, SIZE), 0)
    ImageDraw.Draw(page).text((SIZE / 2, _BASELINE), chr(code), fill=255, font=font, anchor="ms")
    return np.asarray(page)


def open_font(path: Path) -> Font:
    # the basic layout needs no other library, and draws the same with and without one
    return ImageFont.truetype(str(path), _EM, layout_engine=ImageFont.Layout.BASIC)


@cache
def _drawn(folder: str) -> tuple[Array, Array]:
    manifest = _manifest()
    images, labels = [], []
    for face, entry in enumerate(manifest["faces"]):
        font = open_font(_checked(Path(folder) / entry["file"], entry["sha256"]))
        for label, (codes, places, _) in enumerate(manifest["classes"]):
            if places[face] != ".":
                images.append(draw_character(font, codes[int(places[face])]))
                labels.append(label)
    order = np.argsort(labels, kind="stable")
    pictures = np.stack(images)[order]
    pictures.setflags(write=False)
    return pictures, np.array(labels, dtype=np.int64)[order]


@cache
def _manifest() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(MANIFEST.read_text())
    return found


def _names() -> tuple[str, ...]:
    """The first character of each class."""
    return tuple(chr(codes[0]) for codes, _, _ in _manifest()["classes"])


def _fonts_of_matplotlib() -> Path:
    try:
        folder = files("matplotlib") / "mpl-data" / "fonts" / "ttf"
    except ModuleNotFoundError:
        raise ImportError(
            'glyphs are drawn from the fonts that matplotlib ships: pip install "kinfold[glyphs]"'
        ) from None
    return Path(str(folder))


def _checked(path: Path, sha256: str) -> Path:
    if not path.is_file():
        raise ValueError(f"the font {path.name} is missing from {path.parent}: install matplotlib anew, or give fonts=")
    if hashlib.sha256(path.read_bytes()).hexdigest() != sha256:
        raise ValueError(
            f"the font {path} is not the one that the glyphs were chosen from (its sha256 differs), and would give "
            "other pictures: install the matplotlib of constraints.txt, or give the folder of its fonts as fonts="
        )
    return path
