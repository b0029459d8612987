"""Which files are opened as images, and what becomes of transparent pixels and of 16 bits."""

import os
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import kinfold
from kinfold.data import (
    Batches,
    ImageError,
    ImageFiles,
    Rows,
    cache_images,
    check_images,
    create_dataset,
    decode,
    open_image,
)
from kinfold.data.image_reading import FORMATS, flatten, is_transparent, parse_background

from .trees import picture

RED = (200, 30, 40)


def png(path, depth, color_type, rows, *chunks):
    """A PNG file written by hand, for the depths and chunks that Pillow does not write."""

    def chunk(kind, content):
        return len(content).to_bytes(4, "big") + kind + content + zlib.crc32(kind + content).to_bytes(4, "big")

    height, width = rows.shape[:2]
    header = width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes([depth, color_type, 0, 0, 0])
    lines = b"".join(b"\x00" + row.astype(">u2" if depth == 16 else np.uint8).tobytes() for row in rows)
    content = chunk(b"IHDR", header) + b"".join(chunk(*each) for each in chunks)
    content += chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + content)
    return path


def transparent_images():
    """By name, images of 2 x 1 pixels: one of a color that is fully transparent, and one that is opaque."""
    clear = Image.new("RGBA", (2, 1), (*RED, 255))
    clear.putpixel((0, 0), (*RED, 0))
    images = {"RGBA.png": (clear, {}), "RGBA.webp": (clear, {"lossless": True, "exact": True}), "RGBA.tif": (clear, {})}
    images["LA.png"] = (clear.convert("LA"), {})
    palette = Image.new("P", (2, 1))
    palette.putpalette([*RED, *RED])
    palette.putpixel((1, 0), 1)
    images["P with one color.gif"] = (palette, {"transparency": 0})
    images["P with a table.png"] = (palette, {"transparency": b"\x00\xff"})
    keyed = Image.new("RGB", (2, 1), RED)
    keyed.putpixel((1, 0), (RED[0] - 1, *RED[1:]))
    images["RGB with one color.png"] = (keyed, {"transparency": RED})
    images["L with one value.png"] = (keyed.convert("L"), {"transparency": keyed.convert("L").getpixel((0, 0))})
    return images


@pytest.mark.parametrize("name", transparent_images())
def test_transparent_pixels_show_the_background_and_not_the_color_under_them(tmp_path, name):
    image, options = transparent_images()[name]
    if name.startswith("L with"):
        image.putpixel((1, 0), 7)
    image.save(tmp_path / name, **options)
    item = ImageFiles(tmp_path, [name])[0]
    assert is_transparent(open_image(tmp_path / name))
    for mode, white, black in (("RGB", (255, 255, 255), (0, 0, 0)), ("L", 255, 0)):
        assert decode(item, mode).getpixel((0, 0)) == white
        assert decode(item, mode, background="black").getpixel((0, 0)) == black
        opaque = decode(item, mode).getpixel((1, 0))
        assert opaque == decode(item, mode, background="black").getpixel((1, 0))
        assert opaque not in (white, black)
    assert decode(item, background="#102030").getpixel((0, 0)) == (16, 32, 48)


def test_palette_with_alpha_is_drawn_on_the_background_too():
    image = Image.new("PA", (2, 1), (0, 0))
    image.putpixel((1, 0), (0, 255))
    assert flatten(image).getpixel((0, 0)) == (255, 255, 255)
    assert flatten(image).getpixel((1, 0)) == (0, 0, 0)
    assert flatten(Image.new("RGBa", (1, 1), (0, 0, 0, 0)), background="blue").getpixel((0, 0)) == (0, 0, 255)


def test_half_transparent_pixels_are_mixed_with_the_background():
    half = Image.new("RGBA", (1, 1), (0, 0, 0, 128))
    assert flatten(half).getpixel((0, 0)) == (127, 127, 127)
    assert flatten(half, "L").getpixel((0, 0)) == 127


def test_an_opaque_alpha_channel_changes_nothing():
    pixels = np.random.default_rng(0).integers(0, 256, (5, 4, 3), dtype=np.uint8)
    image = Image.fromarray(pixels)
    image.putalpha(255)
    assert not is_transparent(image)
    assert np.array_equal(np.asarray(flatten(image)), pixels)


@pytest.mark.parametrize("color_type", [0, 2])
def test_sixteen_bits_keep_their_upper_half_and_their_transparent_color(tmp_path, color_type):
    values = np.array([[0x12AB, 0x80FF]])
    rows = values if color_type == 0 else values[:, :, None].repeat(3, axis=2)
    key = (0x12AB).to_bytes(2, "big") * (1 if color_type == 0 else 3)
    path = png(tmp_path / "deep.png", 16, color_type, rows, (b"tRNS", key))
    image = decode(ImageFiles(tmp_path, [path.name])[0], "L")
    assert [image.getpixel((column, 0)) for column in (0, 1)] == [255, 0x80]
    opaque = png(tmp_path / "opaque.png", 16, color_type, rows)
    image = decode(ImageFiles(tmp_path, [opaque.name])[0], "L")
    assert [image.getpixel((column, 0)) for column in (0, 1)] == [0x12, 0x80]


def test_a_pgm_of_sixteen_bits_is_scaled_and_not_clipped(tmp_path):
    (tmp_path / "deep.pgm").write_bytes(b"P5 2 1 65535\n" + np.array([0x1234, 0xFFFF], dtype=">u2").tobytes())
    image = decode(ImageFiles(tmp_path, ["deep.pgm"])[0], "L")
    assert [image.getpixel((column, 0)) for column in (0, 1)] == [0x12, 0xFF]


@pytest.mark.parametrize("mode", ["I", "F"])
def test_32_bit_images_are_refused_because_their_range_is_unknown(tmp_path, mode):
    Image.new(mode, (2, 2), 700).save(tmp_path / "deep.tif")
    with pytest.raises(ImageError, match=r"row 1: .*deep.tif has 32 bits per pixel.*save it with 8 or 16 bits"):
        decode(ImageFiles(tmp_path, ["deep.tif"])[0])


def test_arrays_with_a_fourth_channel_are_transparent_too():
    pixels = np.zeros((2, 3, 3, 4), dtype=np.uint8)
    pixels[1, ..., 3] = 255
    dataset = create_dataset("clear", Rows(pixels), ["a", "b"], ["train"] * 2)
    batch = next(iter(Batches(dataset, background="lime")))
    assert batch.images[0].flatten(1).T.unique(dim=0).tolist() == [[0, 255, 0]]
    assert batch.images[1].max() == 0


def test_the_cache_and_every_worker_use_the_same_background(tmp_path):
    Image.new("RGBA", (4, 4), (*RED, 0)).save(tmp_path / "a.png")
    dataset = create_dataset("clear", ImageFiles(tmp_path, ["a.png"]), ["a"], ["train"])
    cached, _ = cache_images(dataset, background="black")
    assert cached.items[0].max() == 0
    assert next(iter(Batches(dataset, background="black"))).images.max() == 0
    assert next(iter(Batches(dataset))).images.min() == 255


def test_a_check_counts_the_images_that_are_transparent(tmp_path):
    picture(tmp_path / "a.png")
    Image.new("RGBA", (4, 4), (*RED, 255)).save(tmp_path / "b.png")
    Image.new("RGBA", (4, 4), (*RED, 254)).save(tmp_path / "c.png")
    (tmp_path / "d.png").touch()
    names = ["a.png", "b.png", "c.png", "d.png"]
    checked = check_images(create_dataset("some", ImageFiles(tmp_path, names), list("abab"), ["train"] * 4))
    assert checked.transparent == [2]
    assert list(checked.broken) == [3]


def test_a_check_finds_white_drawings_on_transparent_pixels(tmp_path):
    drawing = Image.new("RGBA", (4, 4), (0, 0, 0, 0))
    drawing.paste((255, 255, 255, 255), (1, 1, 3, 3))
    drawing.save(tmp_path / "a.png")
    drawing.paste((254, 255, 255, 255), (1, 1, 2, 2))
    drawing.save(tmp_path / "b.png")
    checked = check_images(create_dataset("some", ImageFiles(tmp_path, ["a.png", "b.png"]), list("aa"), ["train"] * 2))
    assert (checked.transparent, checked.blank) == ([0, 1], [0])


@pytest.mark.parametrize("background", ["whitte", "#12", "#gggggg", "#11223344", "rgb(0, 0, 0)", ""])
def test_a_background_that_is_no_color_is_refused(background):
    with pytest.raises(ValueError, match=r"unknown background .*a name such as 'white', or '#rrggbb'"):
        parse_background(background)
    with pytest.raises(ValueError, match=r"data.background: unknown background"):
        kinfold.training.configure({"data": {"background": background}})


def test_a_pipe_is_refused_at_once_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.jpg")
    code = "import sys; from kinfold.data import open_image; open_image(sys.argv[1])"
    # in another process, so that waiting for the pipe is an error and not a test that hangs
    command = [sys.executable, "-c", code, str(tmp_path / "pipe.jpg")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert "ImageError" in ended.stderr
    assert "pipe.jpg is not a regular file" in ended.stderr


def test_devices_folders_and_missing_files_are_refused(tmp_path):
    (tmp_path / "device.jpg").symlink_to("/dev/zero")
    (tmp_path / "folder.jpg").mkdir()
    for name, why in (("device", "is not a regular file"), ("folder", "is a folder"), ("gone", "is missing")):
        with pytest.raises(ImageError, match=rf"row 1: .*{name}.jpg {why}"):
            decode(ImageFiles(tmp_path, [f"{name}.jpg"])[0])


def test_postscript_under_the_name_of_a_photo_starts_no_program(tmp_path, monkeypatch):
    def start(*arguments, **options):
        raise AssertionError(f"a program was started: {arguments}")

    monkeypatch.setattr(subprocess, "Popen", start)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    header = "%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n"
    (tmp_path / "photo.jpg").write_text(f"{header}(%pipe%id) (w) file\n%%EOF\n")
    with pytest.raises(ImageError, match=r"photo.jpg is not an image in one of the formats BMP, GIF, JPEG"):
        decode(ImageFiles(tmp_path, ["photo.jpg"])[0])


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_of_the_list_is_read(tmp_path, name):
    Image.new("RGB", (4, 2), RED).save(tmp_path / "image", format=name)
    assert open_image(tmp_path / "image").size == (4, 2)
    assert open_image((tmp_path / "image").read_bytes()).size == (4, 2)


def test_photos_of_several_pictures_are_read_as_their_first(tmp_path):
    first, second = Image.new("RGB", (4, 2), RED), Image.new("RGB", (4, 2))
    first.save(tmp_path / "stereo.jpg", format="MPO", save_all=True, append_images=[second])
    assert open_image(tmp_path / "stereo.jpg").convert("RGB").getpixel((0, 0))[0] > 150


def test_no_other_module_opens_images():
    package = Path(kinfold.__file__).parent
    users = [path.name for path in package.rglob("*.py") if "Image.open(" in path.read_text()]
    assert users == ["image_reading.py"]
