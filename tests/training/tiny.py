"""Trainings of a second or less, one for every thing that a resumed run must remember, and ways to compare two runs."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from kinfold.data import Dataset, Rows, create_dataset
from kinfold.data.label_table import LabelTable
from kinfold.files.state import read_state, states_equal
from kinfold.training.config.parsing import to_toml

STEPS = 24

# what differs from `recipe()`, by table; "images" trains on small images instead of features
VARIANTS: dict[str, dict[str, Any]] = {
    "margin": {},
    "beta per class": {"loss": {"name": "margin", "num_classes": "auto"}, "optimizer": {"loss_lr": 0.1}},
    "proxy-anchor": {"loss": {"name": "proxy-anchor"}, "miner": None, "optimizer": {"loss_lr": 0.05}},
    "sampled classes": {
        "loss": {"name": "arcface", "class_share": 0.3},
        "miner": None,
        "optimizer": {"loss_lr": 0.05},
    },
    "memory": {"loss": {"name": "contrastive"}, "miner": None, "memory": {"size": 40, "start": 5}},
    "memory with draws": {"memory": {"size": 50, "weight": 0.5}},
    "quadruplet": {"loss": {"name": "quadruplet"}, "miner": None},
    "sampled dro-kl": {"loss": {"name": "dro-kl", "sample": 30}, "miner": None},
    "gc": {"sampler": {"name": "gc", "pool": 48}},
    "ddm": {"sampler": {"name": "ddm"}},
    "frd": {"sampler": {"name": "frd"}},
    "tree of classes": {
        "loss": {"name": "hierarchical-triplet", "num_classes": "auto", "every": 2},
        "sampler": {"name": "anchor-neighbor"},
        "miner": None,
    },
    "smart mining": {
        "loss": {"name": "global-triplet"},
        "sampler": {"name": "smart-mining", "batch_size": 16, "neighbors": 12, "window": 4},
        "miner": {"name": "sampled-triplets"},
    },
    "dropout": {"model": {"head": "mlp", "head_options": {"dropout": 0.3, "batch_norm": True}}},
    "bfloat16": {"training": {"precision": "bfloat16"}},
    "float16": {"training": {"precision": "float16"}, "optimizer": {"clip": 0.5}},
    "float64": {"training": {"precision": "float64"}},
    "micro-batch": {
        "training": {"micro_batch": 5},
        "model": {"head": "mlp", "head_options": {"dropout": 0.3}},
    },
    "mixup": {"mixup": {"alpha": 2.0, "layers": ["input"]}},
    "early stop": {"evaluation": {"every": 2, "patience": 3}, "optimizer": {"lr": 0.5}},
    "test-oracle": {"evaluation": {"selection": "test-oracle", "diagnose": "always"}},
    "last": {"evaluation": {"selection": "last"}},
    "sgd": {
        "optimizer": {"name": "sgd", "lr": 0.05, "momentum": 0.9, "weight_decay": 0.01, "clip": 1.0},
        "schedule": {"name": "cosine", "warmup": 4},
    },
    "rmsprop": {"optimizer": {"name": "rmsprop"}},
    "levels": {"loss": {"name": "happier", "temperature": 0.1}, "miner": None, "levels": True},
    "levels and memory": {
        "loss": {"name": "contrastive"},
        "miner": None,
        "memory": {"size": 40},
        "training": {"micro_batch": 5},
        "levels": True,
    },
    "images": {
        "images": True,
        "loss": {"name": "multi-similarity"},
        "miner": None,
        "training": {"head_only": 3},
        "mixup": {"layers": ["input", "block2"]},
    },
    "workers": {"images": True, "data": {"workers": 2}, "training": {"steps": 12}},
}


def recipe(variant: str = "margin", **changes: dict) -> dict:
    """The tables of a variant; `changes` go into them in the same way."""
    tables = {
        "data": {"name": "features"},
        "model": {"dim": 6},
        "loss": {"name": "margin"},
        "miner": {"name": "distance-weighted"},
        "sampler": {"name": "spc", "batch_size": 16, "per_class": 4},
        "training": {"steps": STEPS, "save_every": 4, "save_seconds": 1e9, "log_every": 1, "device": "cpu"},
        "evaluation": {"every": 6, "metrics": ["recall@1", "map@r"], "diagnostics": ["rho@1", "intra"]},
    }
    for change in (VARIANTS[variant], changes):
        for table, values in change.items():
            if table == "levels":
                tables["evaluation"]["metrics"] = ["recall@1", "map@r", "ndcg@5", "hap"]
                tables["evaluation"]["metric"] = "ndcg@5"
            elif table == "images":
                tables["model"] |= {"backbone": "conv4", "backbone_options": {"width": 8}}
            elif values is None:
                tables.pop(table)
            else:
                # another loss begins without the options of the one before, and a sampler with a batch size of its own
                is_new = "name" in values and (table == "loss" or "batch_size" in values)
                kept = {} if is_new else tables.get(table, {})
                tables[table] = {**kept, **values}
    return tables


def dataset(variant: str = "margin") -> Dataset:
    """20 classes of 9 items, of which 5 classes are for testing: features, or gray images that need a transform."""
    source = np.random.default_rng(0)
    labels = np.repeat(np.arange(20), 9)
    split = np.where(labels < 15, "train", "test")
    if VARIANTS[variant].get("images"):
        centers = source.uniform(0, 255, size=(20, 12, 12))
        items = (0.5 * centers[labels] + source.uniform(0, 127, size=(len(labels), 12, 12))).astype(np.uint8)
    else:
        items = (source.normal(size=(20, 10))[labels] + source.normal(size=(len(labels), 10))).astype(np.float32)
    table = None
    if VARIANTS[variant].get("levels"):
        table = LabelTable.from_texts("levels", np.array([f"group {label // 4}/class {label}" for label in labels]))
    return create_dataset("tiny", Rows(items), labels, split, label_table=table)


def write_files(folder: Path, **changes: dict) -> Path:
    """A feature file and the recipe that names it, for the command line; gives the path of the recipe."""
    data = dataset()
    names = np.asarray(data.classes)[data.labels.numpy()]
    assert isinstance(data.items, Rows)
    np.savez(folder / "tiny.npz", embeddings=data.items.array(), labels=names, split=data.split)
    tables = recipe(**changes)
    tables["data"]["root"] = str(folder / "tiny.npz")
    path = folder / "tiny.toml"
    path.write_text(to_toml(tables))
    return path


def difference(run: Path, expected: Path) -> str:
    """In what a finished run differs from another one; empty where every bit and every line is the same."""
    for name in ("model.safetensors", "best.safetensors"):
        if (run / name).is_file() != (expected / name).is_file():
            return f"{name} is in one of them only"
        if (run / name).is_file() and not states_equal(read_state(run / name), read_state(expected / name)):
            return name
    if (run / "scores.json").read_text() != (expected / "scores.json").read_text():
        return "scores.json"
    if lines(run) != lines(expected):
        return "log.jsonl"
    states = [final_state(folder) for folder in (run, expected)]
    for key in states[0] | states[1]:
        if not states_equal(states[0].get(key), states[1].get(key)):
            return f"{key!r} in the last checkpoint"
    leftovers = [path.name for path in run.rglob("*") if path.name.endswith(".tmp")]
    return f"{leftovers} are left" if leftovers else ""


def final_state(run: Path) -> dict:
    """The last checkpoint, without the length of the log: how many digits a time has is left to chance."""
    newest = max((run / "checkpoints").glob("*.safetensors"))
    state: dict[str, Any] = read_state(newest)
    del state["log"]
    return state


def lines(run: Path) -> list[dict]:
    """What was logged, without the times."""
    events = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "seconds"} for line in events]
