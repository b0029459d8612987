"""Choose the classes of the glyphs data set, once, and write them down: src/kinfold/data/glyphs.json.

    python tools/glyphs_manifest.py

Needs matplotlib (its fonts) and fontTools (which characters a font has). Nothing here runs when the set is loaded.
A class is a set of characters that look alike: two that give the same picture in any face are one. A face stands in for
a class at most once, pictures that repeat within a class are left out, and a class needs eight different ones.
"""

import hashlib
import json
import unicodedata
from collections import defaultdict
from importlib.resources import files
from pathlib import Path

from fontTools.ttLib import TTFont

from kinfold.data.glyphs import MANIFEST, SIZE, draw_character, open_font

FACES = [
    *(f"DejaVuSans{style}.ttf" for style in ("", "-Bold", "-Oblique", "-BoldOblique")),
    *(f"DejaVuSansMono{style}.ttf" for style in ("", "-Bold", "-Oblique", "-BoldOblique")),
    *(f"DejaVuSerif{style}.ttf" for style in ("", "-Bold", "-Italic", "-BoldItalic")),
    *(f"STIXGeneral{style}.ttf" for style in ("", "Bol", "Italic", "BolIta")),
    *(f"cm{style}10.ttf" for style in ("r", "b", "ss", "ti", "tt", "mi")),
]
KINDS = {"Lu", "Ll", "Lt", "Lo", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm", "Sc", "So"}
LEAST = 8
# the Computer Modern faces keep TeX's encoding: letters and digits stand where they should, little else does
ALPHABET = {*map(ord, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789")}
LETTERS_ONLY = "cmmi10.ttf"  # its digits are not digits
# mathematical letters repeat the alphabets in fixed styles; private and unassigned codes mean nothing
MOST = 0xFFFF


def main() -> None:
    folder = Path(str(files("matplotlib") / "mpl-data" / "fonts" / "ttf"))
    faces = [{"file": name, "sha256": hashlib.sha256((folder / name).read_bytes()).hexdigest()} for name in FACES]
    pictures: dict[int, dict[int, bytes]] = defaultdict(dict)  # code -> face -> picture
    for face, name in enumerate(FACES):
        font = open_font(folder / name)
        blank = {
            draw_character(font, code).tobytes() for code in (0x20, 0x10FFFD)
        }  # nothing, and the box for what is missing
        for code in sorted(TTFont(folder / name).getBestCmap()):
            if code > MOST or unicodedata.category(chr(code)) not in KINDS:
                continue
            if name.startswith("cm") and (code not in ALPHABET or (name == LETTERS_ONLY and chr(code).isdigit())):
                continue
            picture = draw_character(font, code).tobytes()
            if picture not in blank:
                pictures[code][face] = picture
    classes = _classes(_merged(pictures), pictures)
    manifest = {"size": SIZE, "faces": faces, "classes": classes}
    lines = ",\n".join(json.dumps(entry, ensure_ascii=True) for entry in classes)
    text = json.dumps({**manifest, "classes": []}, indent=1)
    MANIFEST.write_text(text.replace('"classes": []', f'"classes": [\n{lines}\n]') + "\n")
    count = sum(sum(font_index != "." for font_index in entry[1]) for entry in classes)
    print(f"{len(classes)} classes, {count} pictures, {MANIFEST.stat().st_size:,} bytes")


def _merged(pictures: dict[int, dict[int, bytes]]) -> list[list[int]]:
    """Characters that share a picture in any face, together."""
    parent = {code: code for code in pictures}

    def root(code: int) -> int:
        while parent[code] != code:
            parent[code] = parent[parent[code]]
            code = parent[code]
        return code

    first: dict[tuple[int, bytes], int] = {}
    for code, by_face in pictures.items():
        for face, picture in by_face.items():
            other = first.setdefault((face, picture), code)
            low, high = sorted((root(code), root(other)))
            parent[high] = low
    groups: dict[int, list[int]] = defaultdict(list)
    for code in sorted(pictures):
        groups[root(code)].append(code)
    return [groups[code] for code in sorted(groups)]


def _classes(groups: list[list[int]], pictures: dict[int, dict[int, bytes]]) -> list[tuple[list[int], str, str]]:
    """(codes, for each face the position of its code among them or a dot, split) of every class of sufficient size."""
    classes: list[tuple[list[int], str, str]] = []
    for codes in groups:
        codes = codes[:10]  # a position is one digit; no class needs more to reach every face
        pictures_used: set[bytes] = set()
        positions = ""
        for face in range(len(FACES)):
            position = next((i for i, code in enumerate(codes) if face in pictures[code]), None)
            picture = None if position is None else pictures[codes[position]][face]
            if picture is None or picture in pictures_used:
                positions += "."
            else:
                pictures_used.add(picture)
                positions += str(position)
        if len(pictures_used) >= LEAST:
            # every other class trains: neighbors in the list of characters, such as a capital and its small letter,
            # are alike, and would otherwise all be on one side
            classes.append((codes, positions, "train" if len(classes) % 2 == 0 else "test"))
    return classes


if __name__ == "__main__":
    main()
