"""Small finished runs for tests of commands, and a function that runs a command."""

import atexit
import shutil
import sys
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
from PIL import Image

import kinfold
from kinfold.cli.main import main
from kinfold.training import train

SHORT = {
    "training": {"steps": 20},
    "evaluation": {"selection": "last", "metrics": ["recall@1"], "metric": "recall@1", "diagnose": "never"},
    "sampler": {"name": "spc", "batch_size": 32, "per_class": 4},
}


def run(capsys, monkeypatch, *arguments):
    """(exit code, output, errors)"""
    monkeypatch.setattr(sys, "argv", ["kinfold", *map(str, arguments)])
    monkeypatch.setenv("COLUMNS", "200")
    code = 0
    try:
        main()
    except SystemExit as stop:
        code = stop.code or 0
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def feature_rows():
    """30 classes of eight rows with 16 features: (240, 16), (240,)"""
    draw = np.random.default_rng(0)
    labels = np.repeat(np.arange(30), 8)
    return (draw.normal(size=(30, 16))[labels] + 0.5 * draw.normal(size=(240, 16))).astype(np.float32), labels


@cache
def glyph_files():
    """Glyphs of eight classes in each of two splits, as PNG files in folders."""
    root = _folder() / "glyphs"
    glyphs = kinfold.data.load("glyphs")
    for split in ("train", "test"):
        part = glyphs.subset(split)
        for index in np.flatnonzero(part.labels.numpy() < 8).tolist():
            folder = root / split / f"U+{ord(part.classes[int(part.labels[index])]):04X}"
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(part.items[index]).save(folder / f"{index}.png")
    return root


@cache
def feature_file():
    """Rows around six centers, in two splits of three classes each."""
    draw = np.random.default_rng(0)
    labels = np.repeat(np.arange(6), 20)
    rows = draw.normal(size=(6, 12))[labels] + 0.5 * draw.normal(size=(120, 12))
    path = _folder() / "rows.npz"
    names = np.array(["ant", "bee", "cat", "[bold]dog", "elk", "fox"])[labels]
    split = np.where(labels < 3, "train", "test")
    np.savez(path, embeddings=rows.astype(np.float32), labels=names, split=split)
    return path


@cache
def image_run():
    """Folder of a run on images; tests may change only its cache."""
    data = {"name": "folder", "root": str(glyph_files()), "validation": 0.0}
    return _train_run({"data": data, "model": {"backbone": "conv4", "dim": 8}, **SHORT})


@cache
def feature_run(distance="cosine"):
    """Folder of a run on features; tests may change only its cache."""
    data = {"name": "features", "root": str(feature_file()), "validation": 0.0}
    evaluation = {**SHORT["evaluation"], "distance": distance}
    sampler = {"name": "spc", "batch_size": 12, "per_class": 4}
    return _train_run({"data": data, "model": {"dim": 4}, **SHORT, "evaluation": evaluation, "sampler": sampler})


def _train_run(recipe):
    folder = _folder() / "run"
    train(recipe, folder)
    return folder


def _folder():
    """A temporary folder that lasts as long as this process."""
    folder = mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)
