"""Runs that start from whitening within classes or LDA: `model.init` and `model.init_shrinkage`."""

import numpy as np
import pytest
import torch

import kinfold
from kinfold.data import Rows, create_dataset


def dataset(classes=8, per_class=6, width=5):
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(classes), per_class)
    rows = generator.normal(size=(classes, width))[labels] + generator.normal(size=(len(labels), width))
    return create_dataset("points", Rows(rows.astype(np.float32)), labels, np.full(len(labels), "train"))


def recipe(**model):
    return {
        "model": {"backbone": "features", "dim": 4, "standardize": True, **model},
        "loss": {"name": "multi-similarity"},
        "sampler": {"name": "spc", "batch_size": 16, "per_class": 2},
        "training": {"steps": 0},
        "evaluation": {"selection": "last"},
    }


@pytest.mark.parametrize("init", ["within-whiten", "lda", "plda"])
def test_a_run_without_steps_is_the_estimator(tmp_path, init):
    data = dataset()
    run = kinfold.train(recipe(init=init, init_shrinkage=0.3), tmp_path / "run", dataset=data)
    embedded = torch.nn.functional.normalize(run.embed(data))
    estimator = kinfold.LDA(init, dim=4, shrinkage=0.3).fit(data.items.array(), data.labels.numpy())
    assert np.allclose(embedded.numpy(), estimator.transform(data.items.array()), atol=1e-4)
    assert torch.allclose(run.embed_start(data), run.embed(data))


def test_shrinkage_without_use_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"model\.init_shrinkage belongs to whitening and LDA"):
        kinfold.train(recipe(init="pca", init_shrinkage=0.3), tmp_path / "run", dataset=dataset())
    with pytest.raises(ValueError, match=r"model\.init_shrinkage must be at most 1"):
        kinfold.train(recipe(init="lda", init_shrinkage=1.3), tmp_path / "run", dataset=dataset())


@pytest.mark.parametrize("init", ["within-whiten", "lda"])
def test_the_learner_starts_from_it(init):
    data = dataset(classes=4)
    learner = kinfold.MetricLearner(init=init, dim=9, steps=1, lr=1e-9).fit(data.items.array(), data.labels.numpy())
    expected = kinfold.LDA(init).fit(data.items.array(), data.labels.numpy()).transform(data.items.array())
    assert np.allclose(learner.transform(data.items.array()), expected, atol=1e-4)
