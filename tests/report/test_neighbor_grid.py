"""Image grids: frames that differ, any name, any image."""

import numpy as np
import pytest
from PIL import Image, ImageFont

from kinfold.report import drawable_text
from kinfold.report import neighbor_grid as grid
from kinfold.report.drawable_text import make_drawable
from kinfold.report.neighbor_grid import RIGHT, SIDE, WRONG, GridPicture, draw_grid


def picture(size=(40, 30), color=(10, 200, 10)):
    return Image.new("RGB", size, color)


def drawn(tmp_path, query, neighbors):
    draw_grid(query, neighbors, tmp_path / "grid.png")
    assert [path.name for path in tmp_path.iterdir()] == ["grid.png"]
    with Image.open(tmp_path / "grid.png") as image:
        assert image.format == "PNG"
        return np.asarray(image)


def count(pixels, color):
    return int((pixels == color).all(axis=-1).sum())


def test_frames_mark_correct_and_wrong_neighbors(tmp_path):
    query = GridPicture(("query",), picture(), "query")
    for mark, there, absent in [("right", RIGHT, WRONG), ("wrong", WRONG, RIGHT)]:
        pixels = drawn(tmp_path, query, [GridPicture(("1",), picture(), mark)])
        second = pixels[:-40, grid.GAP + SIDE + 2 * grid.FRAME + grid.GAP :]  # without the query and the legend
        assert count(second, there) > 500
        assert count(second, absent) == 0
        assert count(pixels[:-40, : SIDE + 2 * grid.FRAME], there) == 0  # the query keeps its neutral frame
    pixels = drawn(tmp_path, query, [GridPicture(("1",), picture(), "unknown")])
    assert count(pixels, RIGHT) == count(pixels, WRONG) == 0


def test_frames_differ_without_color_too(tmp_path):
    """Right is darker, and solid: its edge has no gap; wrong is dashed: half of its edge is paper."""
    edges = {}
    for mark in ("right", "wrong"):
        tiles = [GridPicture(("1",), picture(), mark)]
        pixels = drawn(tmp_path, GridPicture(("query",), picture(), "query"), tiles)
        gray = np.asarray(Image.fromarray(pixels).convert("L"))
        left = grid.GAP + SIDE + 2 * grid.FRAME + grid.GAP
        edges[mark] = gray[grid.GAP + 1, left : left + SIDE + 2 * grid.FRAME]
    assert (edges["right"] < 100).all()
    assert 0.4 < (edges["wrong"] == 255).mean() < 0.6
    assert edges["wrong"].min() - edges["right"].max() > 50


def test_small_pictures_keep_sharp_pixels_and_long_ones_their_proportion(tmp_path):
    checks = Image.fromarray((np.indices((28, 28)).sum(axis=0) % 2 * 255).astype(np.uint8))
    pixels = drawn(tmp_path, GridPicture((), checks, "query"), [])
    inner = pixels[grid.GAP + grid.FRAME + 4 : grid.GAP + grid.FRAME + SIDE - 4, 20:150]
    assert set(np.unique(inner)) == {0, 255}
    pixels = drawn(tmp_path, GridPicture((), picture((4000, 1000)), "query"), [])
    green = (pixels == (10, 200, 10)).all(axis=-1)
    assert (np.flatnonzero(green.any(axis=1)).size, np.flatnonzero(green.any(axis=0)).size) == (SIDE // 4, SIDE)


@pytest.mark.parametrize("size", [(1, 1), (1, 5000), (5000, 1), (145, 144)])
@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "P", "1"])
def test_pictures_of_any_shape_and_mode(size, mode, tmp_path):
    drawn(tmp_path, GridPicture(("query",), Image.new(mode, size), "query"), [])


def test_rows_without_pictures_become_tiles_of_text(tmp_path):
    pixels = drawn(
        tmp_path, GridPicture(("query", "wren"), None, "query"), [GridPicture(("1", "robin"), None, "right")]
    )
    blank = drawn(tmp_path, GridPicture((), None, "query"), [GridPicture((), None, "right")])
    assert (pixels != blank).any()


@pytest.mark.parametrize(
    "name",
    [
        "wren" * 500,
        "中文字符",
        "שלום עולם",
        "नमस्ते",
        "👩‍👩‍👧",
        "line\nbreak\ttab\x00null",
        "file \udcff name",
        "\U0010ffff\uffff\ufeff",
        "é",
        "",
        " ",
        "ﷺ﷽",
    ],
)
def test_any_name_can_be_drawn(name, tmp_path):
    drawn(tmp_path, GridPicture((name, name), picture(), "query"), [GridPicture((name,), None, "wrong")])


def test_many_neighbors_fill_several_rows(tmp_path):
    few = drawn(tmp_path, GridPicture((), picture(), "query"), [GridPicture((), picture())] * 5)
    many = drawn(tmp_path, GridPicture((), picture(), "query"), [GridPicture((), picture())] * 99)
    assert few.shape[0] < SIDE * 1.5
    assert 0.5 < many.shape[0] / many.shape[1] < 2
    assert many.shape[1] > few.shape[1]


def test_wrong_file_names_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"a picture grid is a \.png file"):
        draw_grid(GridPicture((), picture()), [], tmp_path / "grid.jpg")
    with pytest.raises(ValueError, match="there is no folder"):
        draw_grid(GridPicture((), picture()), [], tmp_path / "nowhere" / "grid.png")


def test_the_basic_font_of_pillow_is_enough(tmp_path, monkeypatch):
    """Without FreeType, Pillow has one font of 256 letters, and raises for all others."""
    monkeypatch.setattr(ImageFont, "load_default", lambda size=None: ImageFont.load_default_imagefont())
    caches = (drawable_text.load_fonts, drawable_text.find_font)
    for cache in caches:
        cache.cache_clear()
    try:
        assert make_drawable("wren Ж") == "wren U+0416"
        drawn(tmp_path, GridPicture(("wren Ж 中", "x" * 99), picture(), "query"), [GridPicture(("Ж",), None, "right")])
    finally:
        for cache in caches:
            cache.cache_clear()
