"""`Nested`: a loss of prefixes of the embedding, over every registered loss."""

import copy
import inspect

import numpy as np
import pytest
import torch

import kinfold
from kinfold import registry
from kinfold.data import Rows, create_dataset
from kinfold.losses import Mined, Nested

CLASSES, DIM = 4, 8


def batch():
    generator = torch.Generator().manual_seed(0)
    embeddings = torch.randn(16, DIM, generator=generator, dtype=torch.float64, requires_grad=True)
    return embeddings, torch.arange(16) % CLASSES


def create(name, dim=DIM):
    parameters = inspect.signature(registry.resolve("losses", name)).parameters
    options = {}
    if "num_classes" in parameters and parameters["num_classes"].default is inspect.Parameter.empty:
        options["num_classes"] = CLASSES
    if "dim" in parameters:
        options["dim"] = dim
    if "generator" in parameters:
        options["generator"] = torch.Generator().manual_seed(5)
    return kinfold.losses.create(name, **options).double()


@pytest.mark.parametrize("name", kinfold.list("losses"))
def test_the_value_is_the_weighted_mean_over_prefixes_and_reaches_every_dimension(name):
    embeddings, labels = batch()
    loss = create(name)
    nested = Nested(copy.deepcopy(loss), [3, DIM], weights=[1.0, 3.0])
    expected = torch.zeros((), dtype=torch.float64)
    for dim, weight in ((3, 0.25), (DIM, 0.75)):
        part = loss
        if loss.proxies is not None:
            with torch.no_grad():
                part = create(name, dim)
                state = loss.state_dict()
                part.load_state_dict({**state, "proxies": state["proxies"][..., :dim]})
        expected = expected + weight * part(embeddings[:, :dim], labels)
    value = nested(embeddings, labels)
    assert value.item() == pytest.approx(expected.item(), rel=1e-9)
    value.backward()
    assert embeddings.grad.isfinite().all()
    if loss.proxies is not None:
        assert nested.proxies.grad is not None


def test_a_miner_selects_for_each_prefix():
    embeddings, labels = batch()
    miner = kinfold.miners.create("multi-similarity")
    nested = Nested(Mined("contrastive", miner), [2, DIM])
    parts = [Mined("contrastive", miner)(embeddings[:, :dim], labels) for dim in (2, DIM)]
    assert nested(embeddings, labels).item() == pytest.approx(sum(part.item() for part in parts) / 2)


def test_reference_embeddings_are_cut_too():
    embeddings, labels = batch()
    nested = Nested("supcon", [2])
    options = {"ref_embeddings": embeddings[:6].detach(), "ref_labels": labels[:6], "ids": torch.arange(16)}
    options["ref_ids"] = torch.arange(6)
    cut = {**options, "ref_embeddings": options["ref_embeddings"][:, :2]}
    assert torch.allclose(nested(embeddings, labels, **options), nested.loss(embeddings[:, :2], labels, **cut))


@pytest.mark.parametrize(
    ("dims", "weights", "message"),
    [
        ([], None, "at least one"),
        ([0, 4], None, "positive integers"),
        ([8, 4], None, "write"),
        ([4], [1.0, 2.0], "as many weights"),
        ([4], [-1.0], "not be negative"),
    ],
)
def test_wrong_dims_are_refused(dims, weights, message):
    with pytest.raises(ValueError, match=message):
        Nested("margin", dims, weights)
    with pytest.raises(ValueError, match="fewer than dims"):
        Nested("margin", [4, 9])(*batch())


def test_a_run_with_nested_dims_orders_its_dimensions(tmp_path):
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(12), 10)
    rows = generator.normal(size=(12, 16))[labels] + 0.5 * generator.normal(size=(120, 16))
    data = create_dataset("points", Rows(rows.astype(np.float32)), labels, np.full(120, "train"))
    recipe = {
        "model": {"backbone": "features", "dim": 12, "standardize": True, "init": "random"},
        "loss": {"name": "supcon"},
        "sampler": {"name": "spc", "batch_size": 30, "per_class": 5},
        "optimizer": {"lr": 1e-2},
        "training": {"steps": 60},
        "evaluation": {"selection": "last"},
    }
    scores = {}
    for name, changes in {"plain": [], "nested": ["training.nested_dims=[3,12]"]}.items():
        run = kinfold.train(recipe, tmp_path / name, changes=changes, dataset=data)
        prefix = run.embed(data)[:, :3]
        scores[name] = kinfold.metrics.evaluate(prefix, labels, metrics=["map@r"])["map@r"]
    assert scores["nested"] > scores["plain"] + 0.05
    with pytest.raises(ValueError, match=r"are prefixes of model\.dim"):
        kinfold.train(recipe, tmp_path / "long", changes=["training.nested_dims=[3,99]"], dataset=data)


def test_proxies_of_a_run_are_trained_without_a_warning(tmp_path):
    labels = np.repeat(np.arange(6), 10)
    rows = np.random.default_rng(0).normal(size=(60, 8)).astype(np.float32)
    recipe = {
        "model": {"backbone": "features", "dim": 8, "standardize": True},
        "loss": {"name": "proxy-anchor"},
        "sampler": {"name": "spc", "batch_size": 20, "per_class": 5},
        "training": {"steps": 55, "nested_dims": [4, 8]},
        "evaluation": {"selection": "last"},
    }
    data = create_dataset("points", Rows(rows), labels, np.full(60, "train"))
    assert kinfold.train(recipe, tmp_path / "run", dataset=data).finished
