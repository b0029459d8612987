"""The recipe `features` trains whatever loss it is given, for features of any unit."""

import numpy as np
import pytest

import kinfold
from kinfold import recipes
from kinfold.data import Rows, create_dataset

# one loss of each kind: class vectors, usual miner, all pairs, raw vectors, slow
LOSSES = ["proxy-anchor", "contrastive", "multi-similarity", "n-pair", "lifted"]
SHORT = ["model.dim=24", "training.steps=120", "evaluation.every=20", "evaluation.diagnose=never"]


def features(unit: float = 1.0):
    """60 classes that differ in half of the columns; the other half varies as much within each class."""
    draw = np.random.default_rng(0)
    labels = np.repeat(np.arange(60), 10)
    centers, noise = draw.normal(size=(60, 24)), draw.normal(size=(600, 48))
    rows = noise * np.repeat([0.7, 1.2], 24)
    rows[:, :24] += centers[labels]
    split = np.where(labels < 40, "train", "test")
    return create_dataset("columns", Rows((unit * (rows + 3.0)).astype(np.float32)), labels, split)


def train(folder, loss, unit=1.0, *changes):
    data = features(unit)
    return kinfold.train(
        recipes.find_recipe("features"), folder, changes=[f"loss.name={loss}", *SHORT, *changes], dataset=data
    )


@pytest.mark.parametrize("loss", LOSSES)
def test_training_beats_the_start(tmp_path, loss):
    scores = train(tmp_path / "run", loss).scores
    assert not scores["selected_start"]
    for split in ("validation", "test"):
        assert scores[split]["map@r"] > scores["start"][split]["map@r"], split


@pytest.mark.parametrize("loss", ["proxy-anchor", "n-pair"])
def test_the_unit_of_the_features_does_not_matter(tmp_path, loss):
    plain, small, large = (train(tmp_path / f"{unit:g}", loss, unit).scores for unit in (1.0, 2.0**-10, 2.0**10))
    for scores in (plain, small, large):
        del scores["model_sha256"], scores["provenance"]  # weights and data hold the unit
    assert small == plain
    assert large == plain


def test_features_as_they_are_stay_as_they_are(tmp_path):
    changes = ["model.head=identity", "model.init=random", "training.steps=0", "model.dim=48"]
    run = train(tmp_path / "run", "margin", 1.0, *changes)
    assert run.config.model.standardize is False
    data = features().subset("test")
    assert run.scores["test"]["map@r"] == kinfold.metrics.evaluate(data.items.array(), data.labels)["map@r"]


def test_only_rows_of_features_are_standardized(tmp_path):
    data = kinfold.data.create_dataset(
        "pictures", Rows(np.zeros((12, 8, 8), dtype=np.uint8)), np.arange(12) // 3, ["train"] * 12
    )
    with pytest.raises(ValueError, match=r"model\.standardize is for rows of features, and these are images"):
        kinfold.train({"model": {"standardize": True}}, tmp_path / "run", dataset=data)
