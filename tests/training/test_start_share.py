"""`training.start_share`: a run ends with a mixture of its first and its trained weights."""

import numpy as np
import pytest
import torch

import kinfold
from kinfold.data import Rows, create_dataset

LABELS = np.arange(60) % 6
ROWS = np.random.default_rng(0).normal(size=(60, 5)).astype(np.float32)
DATA = create_dataset("points", Rows(ROWS), LABELS, np.where(LABELS < 4, "train", "test"))


def train(folder, share, **options):
    recipe = {
        "data": {"validation": 0.0},
        "model": {"backbone": "features", "dim": 3, "standardize": True},
        "loss": {"name": "contrastive"},
        "sampler": {"name": "spc", "batch_size": 16, "per_class": 4},
        "training": {"steps": 6, "start_share": share},
        "evaluation": {"selection": "last"},
    }
    return kinfold.train(recipe, folder, dataset=DATA, **options)


def test_the_weights_are_a_mixture_and_are_those_that_are_scored(tmp_path):
    whole, mixed = train(tmp_path / "whole", 0.0), train(tmp_path / "mixed", 0.25)
    start, trained = whole.start_model().state_dict(), whole.model().state_dict()
    assert not torch.allclose(start["head.weight"], trained["head.weight"])
    for name, value in mixed.model().state_dict().items():
        assert torch.allclose(value, 0.25 * start[name] + 0.75 * trained[name], atol=1e-6)
    test = mixed.data("test")
    expected = kinfold.metrics.evaluate(mixed.embed(test), test.labels, metrics=["map@r"])["map@r"]
    assert mixed.scores["test"]["map@r"] == pytest.approx(expected, abs=1e-6)


def test_a_share_lies_from_0_to_1(tmp_path):
    with pytest.raises(ValueError, match="start_share"):
        train(tmp_path / "run", 1.5)
