"""Training on data that is passed in Python: what is stored, and how such a run is resumed and opened."""

import numpy as np
import pyarrow
import pytest
import torch

import kinfold
from kinfold.data import Rows
from tests.training.problems import features, recipe


def to_table(dataset):
    assert isinstance(dataset.items, Rows)
    columns = {"embedding": [*dataset.items.array()], "split": dataset.split.tolist()}
    return pyarrow.table({**columns, "label": dataset.labels.numpy()})


def tables(**changes):
    return {name: table for name, table in recipe(**changes).items() if name != "data"}


class Rotated(torch.utils.data.Dataset):
    """A torch dataset of small images, a class for each of a few patterns."""

    def __init__(self, classes=6, count=8):
        rng = np.random.default_rng(0)
        patterns = rng.integers(0, 256, (classes, 16, 16), dtype=np.uint8)
        self.targets = np.repeat(np.arange(classes), count)
        noise = rng.integers(0, 30, (classes * count, 16, 16), dtype=np.uint8)
        self.images = patterns[self.targets] // 2 + noise

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.images[index], int(self.targets[index])


def test_a_table_trains_as_the_dataset_that_it_holds(tmp_path):
    dataset = features()
    first = kinfold.train(tables(), tmp_path / "dataset", dataset=dataset)
    second = kinfold.train(tables(), tmp_path / "table", dataset=to_table(dataset))
    assert first.scores["test"] == second.scores["test"]
    assert second.config.data.name == "passed"
    assert torch.equal(second.embed(to_table(dataset)), first.embed(dataset))


def test_a_run_on_passed_data_says_that_it_needs_it_again(tmp_path):
    def interrupt(event):
        if event.kind == "saved" and event.step:
            raise KeyError("interrupted")

    changes = ["training.save_every=2", "training.steps=6"]
    with pytest.raises(KeyError, match="interrupted"):
        kinfold.train(tables(), tmp_path / "run", changes=changes, dataset=features(), callbacks=[interrupt])
    with pytest.raises(ValueError, match="passed in Python and is not stored with it; pass the same one again"):
        kinfold.train(None, tmp_path / "run", resume=True)
    with pytest.raises(ValueError, match=r"the data is not what .* began with"):
        kinfold.train(None, tmp_path / "run", resume=True, dataset=features(seed=9))
    resumed = kinfold.train(None, tmp_path / "run", resume=True, dataset=to_table(features()))
    whole = kinfold.train(tables(), tmp_path / "whole", changes=changes, dataset=features())
    assert resumed.scores["test"] == whole.scores["test"]


def test_a_path_becomes_part_of_the_configuration(tmp_path):
    dataset = features()
    assert isinstance(dataset.items, Rows)
    labels = np.array(dataset.classes)[dataset.labels.numpy()]
    np.savez(tmp_path / "x.npz", embeddings=dataset.items.array(), labels=labels, split=dataset.split)
    run = kinfold.train(tables(), tmp_path / "run", dataset=tmp_path / "x.npz")
    assert (run.config.data.name, run.config.data.root) == ("features", str(tmp_path / "x.npz"))
    assert set(kinfold.Run.open(tmp_path / "run").splits()) == {"train", "validation", "test"}


def test_a_torch_dataset_of_images_trains_and_embeds(tmp_path):
    data = Rotated()
    settings = {
        "model": {"backbone": "conv4", "dim": 4},
        "training": {"steps": 2},
        "evaluation": {"metrics": ["map@r"]},
    }
    sampler = {"name": "spc", "batch_size": 8, "per_class": 4}
    run = kinfold.train({**settings, "sampler": sampler}, tmp_path / "run", dataset=data)
    assert run.embed(data).shape == (48, 4)
    again = kinfold.Run.open(tmp_path / "run", Rotated())
    assert torch.equal(again.embed(again.data("train")), run.embed(run.data("train")))
    kinfold.embedding.embed_to_file(data, tmp_path / "x.npz", kinfold.embedding.Encoder.from_run(run))
    assert len(kinfold.data.convert(tmp_path / "x.npz")) == 48
