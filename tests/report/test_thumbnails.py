"""Sprite sheets: the most wanted pictures, each where its number says."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

from kinfold.data import ImageFiles, Rows, create_dataset
from kinfold.report.content import thumbnails
from kinfold.report.content.thumbnails import COLUMNS, ROWS, TILE, Thumbnails


def greys(count, side=10):
    """Pictures that differ in their brightness."""
    values = np.linspace(0, 255, count).astype(np.uint8)
    items = np.broadcast_to(values[:, None, None], (count, side, side)).copy()
    return create_dataset("greys", Rows(items), ["a"] * count, ["test"] * count), values


def brightness(drawn, index):
    each = COLUMNS * ROWS
    sheet, inside = divmod(index, each)
    data = drawn["sheets"][sheet].partition(",")[2]
    with Image.open(io.BytesIO(base64.b64decode(data))) as picture:
        upper, left = (TILE * place for place in divmod(inside, COLUMNS))
        return np.asarray(picture.convert("L"))[upper : upper + TILE, left : left + TILE].mean()


def test_every_picture_lies_where_its_number_says(tmp_path):
    data, values = greys(COLUMNS * ROWS + 70)
    wanted = Thumbnails()
    wanted.request("greys", data, reversed(range(len(data))))
    drawn = wanted.draw(tmp_path)
    assert (drawn["tile"], drawn["columns"], drawn["count"], len(drawn["sheets"])) == (48, 64, len(data), 2)
    index = wanted.get_sprites("greys", len(data))
    for place in (0, 1, 70, 600, len(data) - 1):
        assert brightness(drawn, int(index[place])) == pytest.approx(values[place], abs=6)
    assert wanted.get_sprites("others", 5) is None


def test_the_most_wanted_come_first(tmp_path):
    data, _ = greys(40)
    wanted = Thumbnails(max_count=10)
    wanted.request("greys", data, [5, 6, 5])
    wanted.request("greys", data, range(40))
    assert wanted.draw(tmp_path)["count"] == 10
    assert np.flatnonzero(wanted.get_sprites("greys", 40) >= 0).tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert wanted.refused == 30


def test_features_have_no_pictures(tmp_path):
    wanted = Thumbnails()
    wanted.request("rows", create_dataset("rows", Rows(np.zeros((3, 4))), ["a"] * 3, ["test"] * 3), range(3))
    assert wanted.draw(tmp_path) is None


def test_links_to_elsewhere_and_damaged_files_are_counted_not_shown(tmp_path):
    inside = tmp_path / "data"
    inside.mkdir()
    Image.new("RGB", (30, 20), (200, 10, 10)).save(inside / "good.png")
    Image.new("RGB", (30, 20)).save(tmp_path / "private.png")
    (inside / "link.png").symlink_to(tmp_path / "private.png")
    (inside / "broken.png").write_bytes(b"no picture")
    names = ["good.png", "link.png", "broken.png", "../private.png", "gone.png", str(tmp_path / "private.png")]
    data = create_dataset("files", ImageFiles(inside, names), ["a"] * 6, ["test"] * 6)
    for _ in range(2):  # what is kept tells it again
        wanted = Thumbnails()
        wanted.request("files", data, range(6))
        assert wanted.draw(tmp_path)["count"] == 1
        assert (wanted.outside, wanted.unreadable) == (3, 2)
        assert wanted.get_sprites("files", 6).tolist() == [0, -1, -1, -1, -1, -1]


def test_sheets_are_drawn_once(tmp_path, monkeypatch):
    data, _ = greys(5)
    drawn = []
    for _ in range(2):
        wanted = Thumbnails()
        wanted.request("greys", data, range(5))
        drawn.append(wanted.draw(tmp_path))
        monkeypatch.setattr(thumbnails, "decode", lambda *_: pytest.fail("drawn again"))
    assert drawn[0] == drawn[1]


def test_without_webp_they_are_jpeg(tmp_path, monkeypatch):
    monkeypatch.setattr(thumbnails.features, "check", lambda name: False)
    data, values = greys(5)
    wanted = Thumbnails()
    wanted.request("greys", data, range(5))
    drawn = wanted.draw(tmp_path)
    assert drawn["sheets"][0].startswith("data:image/jpeg;base64,")
    assert brightness(drawn, 3) == pytest.approx(values[3], abs=6)
