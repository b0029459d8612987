"""Sprite sheets: the first requests, each at its sprite number."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

from kinfold.data import ImageFiles, Rows, create_dataset
from kinfold.report.content import thumbnails
from kinfold.report.content.thumbnails import COLUMNS, ROWS, TILE, Thumbnails


def grays(count, side=10):
    """Images that differ in their brightness."""
    values = np.linspace(0, 255, count).astype(np.uint8)
    items = np.broadcast_to(values[:, None, None], (count, side, side)).copy()
    return create_dataset("grays", Rows(items), ["a"] * count, ["test"] * count), values


def brightness(drawn, index):
    each = COLUMNS * ROWS
    sheet, inside = divmod(index, each)
    data = drawn["sheets"][sheet].partition(",")[2]
    with Image.open(io.BytesIO(base64.b64decode(data))) as picture:
        upper, left = (TILE * step for step in divmod(inside, COLUMNS))
        return np.asarray(picture.convert("L"))[upper : upper + TILE, left : left + TILE].mean()


def test_every_thumbnail_is_at_its_sprite_number(tmp_path):
    data, values = grays(COLUMNS * ROWS + 70)
    requests = Thumbnails()
    requests.request("grays", data, reversed(range(len(data))))
    drawn = requests.draw(tmp_path)
    assert (drawn["tile"], drawn["columns"], drawn["count"], len(drawn["sheets"])) == (48, 64, len(data), 2)
    index = requests.get_sprites("grays", len(data))
    for item in (0, 1, 70, 600, len(data) - 1):
        assert brightness(drawn, int(index[item])) == pytest.approx(values[item], abs=6)
    assert requests.get_sprites("others", 5) is None


def test_the_first_requests_are_drawn(tmp_path):
    data, _ = grays(40)
    requests = Thumbnails(max_count=10)
    requests.request("grays", data, [5, 6, 5])
    requests.request("grays", data, range(40))
    assert requests.draw(tmp_path)["count"] == 10
    assert np.flatnonzero(requests.get_sprites("grays", 40) >= 0).tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert requests.refused == 30


def test_features_have_no_thumbnails(tmp_path):
    requests = Thumbnails()
    requests.request("rows", create_dataset("rows", Rows(np.zeros((3, 4))), ["a"] * 3, ["test"] * 3), range(3))
    assert requests.draw(tmp_path) is None


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
        requests = Thumbnails()
        requests.request("files", data, range(6))
        assert requests.draw(tmp_path)["count"] == 1
        assert (requests.outside, requests.unreadable) == (3, 2)
        assert requests.get_sprites("files", 6).tolist() == [0, -1, -1, -1, -1, -1]


def test_sheets_are_drawn_once(tmp_path, monkeypatch):
    data, _ = grays(5)
    drawn = []
    for _ in range(2):
        requests = Thumbnails()
        requests.request("grays", data, range(5))
        drawn.append(requests.draw(tmp_path))
        monkeypatch.setattr(thumbnails, "decode", lambda *_: pytest.fail("drawn again"))
    assert drawn[0] == drawn[1]


def test_without_webp_they_are_jpeg(tmp_path, monkeypatch):
    monkeypatch.setattr("kinfold.report.content.thumbnails.features.check", lambda name: False)
    data, values = grays(5)
    requests = Thumbnails()
    requests.request("grays", data, range(5))
    drawn = requests.draw(tmp_path)
    assert drawn["sheets"][0].startswith("data:image/jpeg;base64,")
    assert brightness(drawn, 3) == pytest.approx(values[3], abs=6)
