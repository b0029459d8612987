"""Recipes in which a loss has another distance: miner and evaluation follow, and the run can be opened again."""

import numpy as np
import pytest

import kinfold
from kinfold.training import Run


@pytest.fixture
def recipe(tmp_path):
    generator = np.random.default_rng(0)
    labels = np.arange(120) // 6
    rows = generator.normal(size=(20, 8))[labels] + generator.normal(size=(120, 8))
    path = tmp_path / "birds.npz"
    np.savez(path, embeddings=rows.astype("float32"), labels=labels, split=np.where(labels < 14, "train", "test"))
    return {
        "data": {"name": "features", "root": str(path)},
        "miner": {"name": "hard"},
        "sampler": {"name": "spc", "batch_size": 24, "per_class": 4},
        "training": {"steps": 4},
        "evaluation": {"every": 2, "metrics": ["recall@1", "map@r"], "selection": "last"},
    }


@pytest.mark.parametrize("distance", ["euclidean", "hyperbolic", {"name": "hyperbolic", "curvature": 0.5}, "snr"])
def test_miner_and_evaluation_take_the_distance_of_the_loss(recipe, tmp_path, distance):
    kinfold.train({**recipe, "loss": {"name": "triplet", "distance": distance}}, tmp_path / "run")
    run = Run.open(tmp_path / "run")
    assert run.distance == ("cosine" if distance == "snr" else distance)
    assert run.config.loss.options["distance"] == distance
    test = run.data("test")
    expected = kinfold.metrics.evaluate(run.embed(test), test.labels, metrics=["map@r"], distance=run.distance)
    assert run.scores["test"]["map@r"] == pytest.approx(expected["map@r"], abs=1e-6)


def test_what_is_no_distance_is_refused_before_training(recipe, tmp_path):
    with pytest.raises(ValueError, match="distance must be one of cosine"):
        kinfold.train({**recipe, "loss": {"name": "triplet", "distance": "L1"}}, tmp_path / "run")
