"""Small runs of every state that a report may meet."""

import csv

import numpy as np
from PIL import Image

from kinfold.training import train
from kinfold.training.config.parsing import merge_tables

NAMES = ["<script>alert(1)</script>", "quo\"te's & $x^2$", "👩‍👩‍👧 emoji", "שלום עולם", "wren", "robin\nredbreast"]
RECIPE = {
    "model": {"dim": 4},
    "loss": {"name": "margin"},
    "sampler": {"name": "spc", "batch_size": 12, "per_class": 4},
    "training": {"steps": 6, "save_every": 2, "log_every": 1, "device": "cpu"},
    "evaluation": {"every": 2, "metrics": ["recall@1", "map@r"], "diagnostics": ["rho@1", "density"]},
    "data": {"validation": 0.3},
}
EACH = 8


class BrokenOffError(Exception):
    pass


def break_off(step):
    """A callback that ends a training as a crash would."""

    def callback(event):
        if event.kind == "step" and event.step == step:
            raise BrokenOffError

    return callback


def feature_file(folder, test=True, split=True):
    """Rows around sixteen centers: ten classes to learn from, six with difficult names to test on."""
    draw = np.random.default_rng(0)
    labels = np.repeat(np.arange(16), EACH)
    rows = draw.normal(size=(16, 8))[labels] + 0.7 * draw.normal(size=(len(labels), 8))
    names = np.array([*NAMES, *(f"class {number}" for number in range(10))])[labels]
    tested = labels < len(NAMES)
    if not test:
        rows, names, tested = rows[~tested], names[~tested], tested[~tested]
    arrays = {"split": np.where(tested, "test", "train")} if split else {}
    path = folder / "rows.npz"
    np.savez(path, embeddings=rows.astype(np.float32), labels=names, **arrays)
    return path


def feature_run(folder, changes=None, callbacks=(), **options):
    """Train on such a file in FOLDER/run; what `changes` has goes on top of RECIPE."""
    folder.mkdir(parents=True, exist_ok=True)
    data = {"data": {"name": "features", "root": str(feature_file(folder, **options))}}
    return train(merge_tables(RECIPE, data, changes or {}), folder / "run", callbacks=callbacks)


def picture_table(folder):
    """A table of small pictures, one of which lies outside of the folder of the table."""
    inside = folder / "data"
    inside.mkdir(parents=True)
    draw = np.random.default_rng(0)
    rows = []
    for label in range(8):
        center = draw.uniform(0, 255, size=(12, 12))
        for number in range(5):
            name = f"{label}-{number}.png"
            Image.fromarray((0.7 * center + draw.uniform(0, 76, size=(12, 12))).astype(np.uint8)).save(inside / name)
            rows.append([name, f"kind {label}", "train" if label < 4 else "test"])
    (inside / "7-4.png").rename(folder / "secret-holiday.png")
    rows[-1][0] = "../secret-holiday.png"
    with open(inside / "table.csv", "w", newline="") as file:
        csv.writer(file).writerows([["path", "label", "split"], *rows])
    return inside / "table.csv"


def image_run(folder):
    changes = {
        "data": {"name": "table", "root": str(picture_table(folder)), "validation": 0.0},
        "model": {"backbone": "conv4", "backbone_options": {"width": 8}},
        "training": {"steps": 2},
        "evaluation": {"selection": "last"},
        "sampler": {"batch_size": 8},
    }
    return train(merge_tables(RECIPE, changes), folder / "run")


def find_remarks(content, text):
    """Return the remarks of a report that contain a text."""
    return [sentence for sentence in content["missing"] if text in sentence]
