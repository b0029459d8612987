"""Glyphs, the built-in dataset: characters as classes, typefaces as instances, drawn with the fonts of matplotlib.

The file `glyphs.json` lists the typefaces, characters, classes and splits.
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


def glyphs(fonts: Path | str | None = None, classes: int | None = None) -> Dataset:
    """Draw characters in up to 22 typefaces, white on black, 28 x 28 pixels; half of the classes train, half test.

    Drawing takes a few seconds, once per process.

    Args:
        fonts: Folder of the font files; that of the installed matplotlib if left out.
        classes: How many characters, half of them for training; they are spread evenly over all characters. All if
            left out.

    Returns:
        A dataset of uint8 images (28, 28).

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: A font is missing, or is not the one that the dataset was made with; or there are not so many
            classes.
    """
    folder = _find_matplotlib_fonts() if fonts is None else Path(fonts)
    chosen = _choose_classes(classes)
    images, labels = _draw_classes(str(folder), chosen)
    entries = [_read_manifest()["classes"][number] for number in chosen]
    names, split = tuple(chr(codes[0]) for codes, _, _ in entries), np.array([entry[2] for entry in entries])
    return Dataset("glyphs", Rows(images), torch.from_numpy(labels), names, split[labels])


def draw_character(font: Font, code: int) -> Array:
    """Draw one character, (28, 28) uint8, on a common baseline, which distinguishes a comma from an apostrophe."""
    page = Image.new("L", (SIZE, SIZE), 0)
    ImageDraw.Draw(page).text((SIZE / 2, _BASELINE), chr(code), fill=255, font=font, anchor="ms")
    return np.asarray(page)


def open_font(path: Path) -> Font:
    # the basic layout draws the same whether or not other layout libraries are installed
    return ImageFont.truetype(str(path), _EM, layout_engine=ImageFont.Layout.BASIC)


def _choose_classes(count: int | None) -> tuple[int, ...]:
    """Positions in the manifest: all, or evenly spread ones, half of them of each split."""
    splits = np.array([entry[2] for entry in _read_manifest()["classes"]])
    if count is None:
        return tuple(range(len(splits)))
    if not 2 <= count <= len(splits):
        raise ValueError(f"glyphs has {len(splits)} classes: classes must be 2 to {len(splits)}, got {count}")
    test = min(count // 2, int((splits == "test").sum()))
    chosen = []
    for name, share in (("train", count - test), ("test", test)):
        members = np.flatnonzero(splits == name)
        chosen += members[np.arange(share) * len(members) // share].tolist()
    return tuple(sorted(chosen))


@cache
def _draw_classes(folder: str, chosen: tuple[int, ...]) -> tuple[Array, Array]:
    """Images and labels, sorted by label; a label is a position in `chosen`."""
    manifest = _read_manifest()
    images, labels = [], []
    for face, entry in enumerate(manifest["faces"]):
        font = open_font(_verify_font(Path(folder) / entry["file"], entry["sha256"]))
        for label, number in enumerate(chosen):
            codes, choices, _ = manifest["classes"][number]
            if choices[face] != ".":
                images.append(draw_character(font, codes[int(choices[face])]))
                labels.append(label)
    order = np.argsort(labels, kind="stable")
    stacked = np.stack(images)[order]
    stacked.setflags(write=False)
    return stacked, np.array(labels, dtype=np.int64)[order]


@cache
def _read_manifest() -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads(MANIFEST.read_text())
    return manifest


def _find_matplotlib_fonts() -> Path:
    try:
        folder = files("matplotlib") / "mpl-data" / "fonts" / "ttf"
    except ModuleNotFoundError:
        raise ImportError(
            'glyphs are drawn from the fonts that matplotlib ships: pip install "kinfold[glyphs]"'
        ) from None
    return Path(str(folder))


def _verify_font(path: Path, sha256: str) -> Path:
    if not path.is_file():
        raise ValueError(f"the font {path.name} is missing from {path.parent}: reinstall matplotlib, or give fonts=")
    if hashlib.sha256(path.read_bytes()).hexdigest() != sha256:
        raise ValueError(
            f"the font {path} is not the one that the glyphs were made with (its sha256 differs), and would give other "
            "images: install the matplotlib of constraints.txt, or give the folder of its fonts as fonts="
        )
    return path
