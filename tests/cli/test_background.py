"""Transparent images are draw_opaque on the background of the run by train, embed, search, export and report."""

import base64
import json

import numpy as np
import pytest
from PIL import Image

from kinfold.data import ImageFiles, create_dataset, load
from kinfold.data.image_reading import flatten, open_image
from kinfold.report.content.thumbnails import Thumbnails
from kinfold.training import Run, train

from .runs import SHORT, run

HIDDEN = (255, 0, 0)


@pytest.fixture(scope="module")
def shapes(tmp_path_factory):
    """White shapes on transparent pixels, whose hidden color is red."""
    root = tmp_path_factory.mktemp("shapes") / "shapes"
    draw = np.random.default_rng(0)
    for label in range(6):
        for number in range(4):
            pixels = np.full((20, 20, 4), (*HIDDEN, 0), dtype=np.uint8)
            pixels[2 + label : 8 + 2 * label, 3 + draw.integers(3) : 15] = 255
            path = root / ("train" if label < 4 else "test") / f"shape {label}" / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(path)
    return root


@pytest.fixture(scope="module")
def black_run(shapes, tmp_path_factory):
    """A run whose recipe sets a black background."""
    folder = tmp_path_factory.mktemp("runs") / "black"
    data = {"name": "folder", "root": str(shapes), "validation": 0.0, "background": "black"}
    model = {"backbone": "conv4", "dim": 8}
    sampler = {"name": "spc", "batch_size": 8, "per_class": 4}
    train({**SHORT, "data": data, "model": model, "sampler": sampler, "training": {"steps": 2}}, folder)
    return folder


def draw_opaque(shapes, folder, background):
    """The test images as opaque files on a background."""
    for path in sorted((shapes / "test").rglob("*.png")):
        copy = folder / path.relative_to(shapes)
        copy.parent.mkdir(parents=True, exist_ok=True)
        flatten(open_image(path), background=background).save(copy)
    return load("folder", folder)


def test_the_background_is_saved_with_the_run_and_used_to_embed(capsys, monkeypatch, shapes, black_run, tmp_path):
    opened_run = Run.open(black_run)
    assert 'background = "black"' in opened_run.run_folder.configuration.read_text()
    expected = opened_run.embed(draw_opaque(shapes, tmp_path / "black", "black"))
    assert opened_run.embed(opened_run.data("test")).equal(expected)
    assert not opened_run.embed(draw_opaque(shapes, tmp_path / "white", "white")).equal(expected)
    code, _, _ = run(capsys, monkeypatch, "embed", black_run, "--split", "test", "--out", tmp_path / "e.npz")
    assert code == 0
    assert np.allclose(np.load(tmp_path / "e.npz")["embeddings"], expected.numpy(), atol=1e-6)


def test_embedding_pixels_takes_a_background_and_embedding_with_a_run_does_not(
    capsys, monkeypatch, shapes, black_run, tmp_path
):
    common = ("embed", "folder", "--root", shapes, "--out", tmp_path / "e.npz")
    code, _, _ = run(capsys, monkeypatch, *common, "--size", 20, "--background", "lime")
    rows = np.load(tmp_path / "e.npz")["embeddings"].reshape(-1, 3, 20, 20)
    assert code == 0
    assert rows[0, :, 0, 0].tolist() == [0, 1, 0]
    code, _, output = run(capsys, monkeypatch, *common, "--run", black_run, "--background", "lime")
    assert code == 2
    assert "leave --background out" in output


def test_search_draws_its_grid_on_the_background_of_the_run(capsys, monkeypatch, shapes, black_run, tmp_path):
    query = next((shapes / "test").rglob("*.png"))
    code, _, output = run(capsys, monkeypatch, "search", black_run, query, "--grid", tmp_path / "grid.png", "--k", "3")
    assert code == 0, output
    colors = {color for _, color in Image.open(tmp_path / "grid.png").getcolors(1 << 16)}
    assert HIDDEN not in colors
    assert (0, 0, 0) in colors


def test_an_export_names_the_background_of_its_images(capsys, monkeypatch, black_run, tmp_path):
    code, output, _ = run(capsys, monkeypatch, "export", black_run, "--out", tmp_path / "m.pt2", "--json")
    assert code == 0
    assert json.loads(output)["metadata"]["background"] == "black"


def test_thumbnails_of_a_report_have_the_background_of_the_run(shapes, tmp_path):
    paths = sorted(path.relative_to(shapes).as_posix() for path in shapes.rglob("*.png"))
    dataset = create_dataset(
        "shapes", ImageFiles(shapes, paths), [path.split("/")[1] for path in paths], ["test"] * len(paths)
    )
    for background, brightness in (("black", 0), ("white", 255)):
        thumbnails = Thumbnails()
        thumbnails.request(background, dataset, [0], background)
        sheet = thumbnails.draw(tmp_path)["sheets"][0]
        pixels = np.asarray(flatten(open_image(base64.b64decode(sheet.partition(",")[2]))))
        assert abs(int(pixels[1, 1].min()) - brightness) < 10
        assert abs(int(pixels[1, 1].max()) - brightness) < 10


def test_data_check_counts_transparent_images(capsys, monkeypatch, shapes):
    code, output, _ = run(capsys, monkeypatch, "data", "check", "folder", "--root", shapes, "--json")
    assert code == 0
    assert json.loads(output)["transparent"] == 24
    _, output, _ = run(capsys, monkeypatch, "data", "check", "folder", "--root", shapes)
    assert "24 images have transparent pixels" in output
