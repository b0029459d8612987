"""Decoding, and what happens to images that are missing, empty or damaged."""

import numpy as np
import pytest
from PIL import Image

from kinfold.data import (
    Batches,
    ImageError,
    ImageFiles,
    cache_images,
    create_dataset,
    decode,
    find_broken_images,
    keep_readable,
)

from .trees import picture

NAMES = ["good.jpg", "gone.jpg", "empty.jpg", "cut.jpg", "text.png", "fine.png"]
BROKEN = {1: "is missing", 2: "has zero bytes", 3: "is corrupt", 4: "is not an image"}


@pytest.fixture
def damaged(tmp_path):
    picture(tmp_path / "good.jpg", 1)
    picture(tmp_path / "fine.png", 2)
    picture(tmp_path / "cut.jpg", 3, size=(200, 200))
    (tmp_path / "cut.jpg").write_bytes((tmp_path / "cut.jpg").read_bytes()[:5000])
    (tmp_path / "empty.jpg").touch()
    (tmp_path / "text.png").write_text("<html>not found</html>")
    files = ImageFiles(tmp_path, NAMES, source="list.txt", rows=range(10, 16))
    return create_dataset("damaged", files, labels=list("ababab"), split=["train"] * 6)


@pytest.mark.parametrize("index", BROKEN)
def test_a_broken_image_is_reported_with_its_row_and_the_reason(damaged, index):
    with pytest.raises(ImageError, match=rf"list.txt row {10 + index}: .*{NAMES[index]} {BROKEN[index]}"):
        decode(damaged.items[index])


def test_broken_images_are_found_before_a_run(damaged):
    assert list(find_broken_images(damaged)) == list(BROKEN)
    readable, broken = keep_readable(damaged, errors="skip")
    assert (len(readable), list(broken)) == (2, list(BROKEN))
    assert readable.labels.tolist() == [0, 1]
    with pytest.raises(ImageError, match=r"row 11: .*gone.jpg is missing \(4 such of 6"):
        keep_readable(damaged)
    with pytest.raises(ValueError, match="errors must be 'raise' or 'skip'"):
        keep_readable(damaged, errors="ignore")


@pytest.mark.parametrize("workers", [0, 2])
def test_a_run_stops_at_a_broken_image_or_skips_and_counts_it(damaged, workers):
    with pytest.raises(ImageError, match=r"^list.txt row 11: .*gone.jpg is missing; fix or remove it; errors='skip'"):
        list(Batches(damaged, batch_size=4, workers=workers))
    batches = Batches(damaged, batch_size=2, workers=workers, errors="skip")
    assert [batch.indices.tolist() for batch in batches] == [[0], [5]]
    assert list(batches.skipped) == list(BROKEN)
    list(batches)
    assert len(batches.skipped) == 4


def test_the_cache_stops_or_skips_too(damaged):
    with pytest.raises(ImageError, match=r"gone.jpg is missing"):
        cache_images(damaged)
    cached, skipped = cache_images(damaged, errors="skip")
    assert (len(cached), list(skipped)) == (2, list(BROKEN))


def test_every_kind_of_image_becomes_color_or_gray(tmp_path):
    color = Image.new("RGB", (4, 2), (255, 0, 0))
    for mode in ("L", "RGB", "RGBA", "P", "1", "LA", "CMYK"):
        color.convert(mode).save(tmp_path / f"{mode}.{'tif' if mode == 'CMYK' else 'png'}")
    transparent = color.convert("P")
    transparent.save(tmp_path / "clear.png", transparency=b"\x00\xff")
    deep = np.full((2, 4), 0x8000, dtype=np.uint16)
    Image.fromarray(deep).save(tmp_path / "deep.png")
    files = ImageFiles(tmp_path, sorted(path.name for path in tmp_path.iterdir()))
    for index in range(len(files)):
        assert decode(files[index]).mode == "RGB"
        assert decode(files[index], mode="L").size == (4, 2)
    assert decode(files[files.paths.tolist().index("deep.png")], mode="L").getpixel((0, 0)) == 0x80


def test_boxes_are_cut_to_the_image_and_refused_outside(tmp_path):
    picture(tmp_path / "a.png", size=(12, 8))
    files = ImageFiles(tmp_path, ["a.png", "a.png"], boxes=np.array([[8, 4, 20, 20], [12, 0, 20, 8]]))
    assert decode(files[0]).size == (4, 4)
    with pytest.raises(ImageError, match="lies outside the image of 12 x 8 pixels"):
        decode(files[1])


def test_arrays_are_images_too():
    assert decode(np.zeros((4, 6), dtype=np.uint8), mode="L").size == (6, 4)
    with pytest.raises(ValueError, match="an image is uint8"):
        decode(np.zeros((4, 6)))
