"""Every loss that draws nothing compiles into one graph, without a break, and gives the same value and gradient."""

import copy

import pytest
import torch

import kinfold
from kinfold.losses import opaque
from tests.problems import LOSSES, batch, draws, gradient, has_proxies, make


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def check(name, backend, **options):
    x, y = batch(31, dtype=torch.float32)
    expected, slope = gradient(make(name), x, y, **options)
    loss = make(name)
    compiled = torch.compile(loss, fullgraph=True, backend=backend)
    leaf = x.clone().requires_grad_()
    value = compiled(leaf, y, **options)
    value.backward()
    torch.testing.assert_close(value.detach(), expected)
    torch.testing.assert_close(leaf.grad, slope, rtol=1e-4, atol=1e-6)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", [n for n in LOSSES if not draws(n)])
def test_one_graph_on_labels(name):
    check(name, "eager")


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", [n for n in LOSSES if not draws(n) and not has_proxies(n)])
def test_one_graph_on_a_reference_set(name):
    r, z = batch(32, dtype=torch.float32)
    items = torch.arange(len(z))
    check(name, "eager", ref_embeddings=r, ref_labels=z, ids=items + 5, ref_ids=items)


@pytest.mark.parametrize("name", ["contrastive", "triplet", "margin"])
def test_one_graph_on_triplets(name):
    x, y = batch(31, dtype=torch.float32)
    check(name, "eager", tuples=kinfold.miners.create("hard")(x, y))


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", [n for n in LOSSES if not draws(n)])
def test_large_batches_are_left_to_one_operator(name, monkeypatch):
    monkeypatch.setattr(opaque, "OPAQUE_PAIRS", 1)
    check(name, "aot_eager")


@pytest.mark.parametrize("name", ["contrastive", "supcon", "dro-kl"])
def test_large_batches_with_ids_reference_sets_and_relations(name, monkeypatch):
    monkeypatch.setattr(opaque, "OPAQUE_PAIRS", 1)
    x, y = batch(31, dtype=torch.float32)
    r, z = batch(32, dtype=torch.float32)
    items = torch.arange(len(z))
    check(name, "aot_eager", ref_embeddings=r, ref_labels=z, ids=items + 5, ref_ids=items)
    check(name, "aot_eager", tuples=kinfold.miners.create("multi-similarity")(x, y))
    if make(name).takes_sample_weight:
        check(name, "aot_eager", sample_weight=torch.arange(len(x)) / len(x))


def test_copies_of_a_loss_are_found_by_numbers_of_their_own():
    loss = make("margin")
    copied = copy.deepcopy(loss)
    assert copied.number != loss.number
    assert opaque._LOSSES[copied.number] is copied


@pytest.mark.slow
@pytest.mark.parametrize("name", ["multi-similarity", "triplet", "proxy-anchor", "binomial"])
def test_inductor(name):
    check(name, "inductor")
