"""`kinfold data check` and `kinfold embed`, with broken images and a run that is killed."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from PIL import Image

import kinfold
from kinfold.embedding import Encoder, embed_to_file, flatten_pixels, writer
from tests.cli.runs import run


@pytest.fixture
def folder(tmp_path):
    """Three classes of five images in tmp_path/images."""
    rng = np.random.default_rng(0)
    for label in ("crow", "robin", "wren"):
        (tmp_path / "images" / label).mkdir(parents=True)
        for i in range(5):
            pixels = rng.integers(0, 255, (12, 10, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "images" / label / f"{i}.png")
    return tmp_path / "images"


def test_check_counts_items_and_classes(folder, capsys, monkeypatch):
    code, out, _ = run(capsys, monkeypatch, "data", "check", "folder", "--root", folder, "--json")
    assert code == 0
    result = json.loads(out)
    assert (result["items"], result["classes"], result["unreadable"]) == (15, 3, {})
    assert next(iter(result["splits"].values()))["smallest"] == 5
    code, out, _ = run(capsys, monkeypatch, "data", "check", "folder", "--root", folder)
    assert code == 0
    assert "15 items, 3 classes" in out
    assert "everything can be read" in out


def test_check_names_unreadable_files(folder, capsys, monkeypatch):
    (folder / "wren" / "3.png").write_bytes(b"")
    code, out, _ = run(capsys, monkeypatch, "data", "check", "folder", "--root", folder)
    assert code == 1
    assert "3.png has zero bytes" in out
    assert "1 images cannot be read" in out


def test_check_without_decoding_does_not_count_unreadable_files(folder, capsys, monkeypatch):
    (folder / "wren" / "3.png").write_bytes(b"")
    code, out, _ = run(capsys, monkeypatch, "data", "check", "folder", "--root", folder, "--no-images")
    assert code == 0
    assert "no image was decoded" in out
    assert "can be read" not in out
    _, out, _ = run(capsys, monkeypatch, "data", "check", "folder", "--root", folder, "--no-images", "--json")
    assert json.loads(out)["unreadable"] is None


def test_check_accepts_the_builtin_dataset(capsys, monkeypatch):
    code, out, _ = run(capsys, monkeypatch, "data", "check", "glyphs", "--json")
    assert code == 0
    assert json.loads(out)["splits"]["test"]["classes"] == 967


def test_missing_data_is_explained(tmp_path, capsys, monkeypatch):
    code, _, errors = run(capsys, monkeypatch, "data", "check", "cub", "--root", tmp_path)
    assert code == 2
    assert "Traceback" not in errors
    code, _, errors = run(capsys, monkeypatch, "data", "check", "cubs", "--root", tmp_path)
    assert "did you mean 'cub'" in errors


def test_embed_then_evaluate(folder, tmp_path, capsys, monkeypatch):
    out = tmp_path / "features.npz"
    code, output, _ = run(capsys, monkeypatch, "embed", "folder", "--root", folder, "--size", 6, "--out", out)
    assert code == 0
    assert "15 rows of images" in output
    assert not (tmp_path / "features.npz.parts").exists()
    read = kinfold.data.load("features", root=out)
    assert read.classes == ("crow", "robin", "wren")
    assert np.asarray(read.items[0]).shape == (6 * 6 * 3,)
    code, output, _ = run(capsys, monkeypatch, "evaluate", out, "--json")
    assert code == 0
    assert json.loads(output)["queries"] == 15


def test_unreadable_images_stop_or_are_left_out(folder, tmp_path, capsys, monkeypatch):
    (folder / "crow" / "1.png").write_bytes(b"not a picture")
    out = tmp_path / "features.npz"
    code, _, errors = run(capsys, monkeypatch, "embed", "folder", "--root", folder, "--out", out)
    assert code == 2
    assert "1.png is not an image" in errors
    assert not out.exists()
    other = tmp_path / "others.npz"
    code, output, errors = run(
        capsys, monkeypatch, "embed", "folder", "--root", folder, "--errors", "skip", "--out", other
    )
    assert code == 0
    assert "14 rows of images, 1 unreadable images left out" in output
    assert "1.png" in errors
    assert len(np.load(other)["embeddings"]) == 14


def test_parts_of_another_command_are_refused(folder, tmp_path, monkeypatch):
    dataset = kinfold.data.load("folder", root=folder)
    monkeypatch.setattr(writer, "PART_SIZE", 4)

    def interrupt(images):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        embed_to_file(dataset, tmp_path / "f.npz", Encoder(interrupt, None, {"size": 1}))
    with pytest.raises(ValueError, match="size differ"):
        embed_to_file(dataset, tmp_path / "f.npz", Encoder(flatten_pixels, None, {"size": 2}))


def test_a_stopped_embedding_continues(folder, tmp_path, monkeypatch):
    dataset = kinfold.data.load("folder", root=folder)
    monkeypatch.setattr(writer, "PART_SIZE", 4)
    batch_sizes = []

    def model(images, stop_after=None):
        batch_sizes.append(len(images))
        if stop_after is not None and len(batch_sizes) > stop_after:
            raise KeyboardInterrupt
        return flatten_pixels(images)

    pipeline = kinfold.data.Pipeline(kinfold.data.Warp(5), kinfold.data.Warp(5), None, "RGB")

    def embed(name, model):
        embed_to_file(dataset, tmp_path / name, Encoder(model, pipeline, {}), batch_size=2)

    with pytest.raises(KeyboardInterrupt):
        embed("f.npz", lambda images: model(images, 5))
    assert sum(batch_sizes[:5]) == 10
    batch_sizes.clear()
    embed("f.npz", model)
    assert sum(batch_sizes) == 15 - 8  # two parts of four were there
    whole = np.load(tmp_path / "f.npz")
    embed("g.npz", flatten_pixels)
    again = np.load(tmp_path / "g.npz")
    assert all(np.array_equal(whole[name], again[name]) for name in again.files)


@pytest.mark.slow
def test_a_killed_command_continues(tmp_path):
    out = tmp_path / "glyphs.npz"
    command = [sys.executable, "-m", "kinfold", "embed", "glyphs", "--split", "test", "--gray", "--out", str(out)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    parts = tmp_path / "glyphs.npz.parts"
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    for _ in range(600):
        if len(list(parts.glob("*.npz"))) >= 2 or process.poll() is not None:
            break
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not out.exists(), "it finished before it could be killed"
    parts_before = {path.name: path.stat().st_mtime_ns for path in parts.glob("*.npz")}
    assert parts_before
    finished = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert finished.returncode == 0, finished.stderr
    assert not parts.exists()
    result = np.load(out)
    test = kinfold.data.load("glyphs").subset("test")
    assert result["embeddings"].shape == (len(test), 28 * 28)
    first = np.asarray(test.items[0]).flatten() / 255
    assert np.allclose(result["embeddings"][0], first)
    assert result["labels"].tolist() == [test.classes[label] for label in test.labels.tolist()]


def test_options_that_an_error_recommends_work(folder, tmp_path, capsys, monkeypatch):
    table = tmp_path / "birds.csv"
    lines = [f"{label}/{i}.png,{label}" for label in ("crow", "wren") for i in range(5)]
    table.write_text("\n".join(["file,species", *lines]))
    base = ("--root", table, "--set", f"data.options.images={json.dumps(str(folder))}")
    code, _, errors = run(capsys, monkeypatch, "data", "check", "table", *base)
    assert code == 2
    assert "--set data.options.columns.path=... on the command line" in errors
    output = ("--set", "data.options.columns.path=file", "--set", "data.options.columns.label=species")
    code, out, _ = run(capsys, monkeypatch, "data", "check", "table", *base, *output, "--json")
    assert code == 0
    assert (json.loads(out)["items"], json.loads(out)["classes"]) == (10, 2)
    code, _, _ = run(capsys, monkeypatch, "embed", "table", *base, *output, "--out", tmp_path / "birds.npz")
    assert code == 0
    with np.load(tmp_path / "birds.npz") as file:
        assert len(file["embeddings"]) == 10


def test_only_options_of_the_dataset_can_be_set(folder, capsys, monkeypatch):
    code, _, errors = run(capsys, monkeypatch, "data", "check", "folder", "--root", folder, "--set", "loss.k=2")
    assert code == 2
    assert "only options of the data set can be set here, data.options.NAME=VALUE" in errors
