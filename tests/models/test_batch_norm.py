"""Frozen batch norm in both senses, and what stays frozen."""

import pytest
import torch

from kinfold import models
from kinfold.models.batch_norm import list_batch_norms

STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


def network(batch_norm, name="conv4"):
    options = {"width": 16} if name == "conv4" else None
    embedder = models.create(name, 4, "mlp", batch_norm=batch_norm, backbone_options=options)
    generator = torch.Generator().manual_seed(1)
    for layer in list_batch_norms(embedder.backbone):  # as if trained: otherwise statistics of 0 and 1 hide mistakes
        layer.running_mean.normal_(generator=generator)
        layer.running_var.uniform_(0.5, 2.0, generator=generator)
    return embedder


def statistics(embedder):
    return [getattr(layer, name).clone() for layer in list_batch_norms(embedder.backbone) for name in STATISTICS]


def step(embedder, images):
    embedder.train()
    embedder.zero_grad()
    embedder(images).square().sum().backward()


def images(count=6, channels=1, size=16):
    return torch.randn(count, channels, size, size, generator=torch.Generator().manual_seed(0)) * 3 + 1


def equal(first, second):
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_trained_batch_norm_moves_its_statistics():
    embedder = network("train")
    before = statistics(embedder)
    step(embedder, images())
    assert not any(torch.equal(a, b) for a, b in zip(before, statistics(embedder), strict=True))
    assert all(layer.training for layer in list_batch_norms(embedder))


@pytest.mark.parametrize("name", ["conv4", "resnet50", "bn-inception"])
@pytest.mark.parametrize("sense", ["frozen-statistics", "frozen"])
def test_frozen_statistics_stay_and_are_what_normalizes(sense, name):
    embedder = network(sense, name).double()
    batch = (images() if name == "conv4" else images(2, 3, 64)).double()
    before = statistics(embedder)
    assert not any(layer.training for layer in list_batch_norms(embedder.backbone))  # from the start
    for _ in range(2):
        step(embedder, batch)
    assert equal(before, statistics(embedder))
    embedder.train()
    with torch.no_grad():
        together, alone = embedder.features(batch), embedder.features(batch[:1])
    assert torch.allclose(together[:1], alone, rtol=1e-9)  # an item does not depend on its batch


@pytest.mark.parametrize(("sense", "learns"), [("train", True), ("frozen-statistics", True), ("frozen", False)])
def test_scale_and_shift_learn_unless_they_are_frozen_too(sense, learns):
    embedder = network(sense)
    step(embedder, images())
    norms = list_batch_norms(embedder.backbone)
    assert len(norms) == 4
    for layer in norms:
        for parameter in (layer.weight, layer.bias):
            assert parameter.requires_grad == learns
            assert (parameter.grad is not None and bool(parameter.grad.abs().sum() > 0)) == learns
    assert all(block[0].weight.grad.abs().sum() > 0 for block in embedder.backbone.children())  # convolutions learn


def test_frozen_layers_stay_frozen_after_any_switch_of_mode():
    for sense in ("frozen-statistics", "frozen"):
        embedder = network(sense)
        for switch in (embedder.train, embedder.eval, embedder.train, torch.nn.Sequential(embedder).train):
            switch()
            assert not any(layer.training for layer in list_batch_norms(embedder.backbone))
        assert embedder.training
        assert embedder.backbone.training  # the rest of it does learn
        assert embedder.backbone.block1[0].training


def test_the_batch_norm_of_a_head_learns_whatever_the_backbone_does():
    embedder = models.create("conv4", 4, "mlp", batch_norm="frozen", head_options={"batch_norm": True})
    step(embedder, images())
    assert embedder.head[1].training
    assert embedder.head[1].num_batches_tracked == 1
    assert embedder.head[1].weight.grad is not None


def test_freezing_survives_the_change_to_the_batch_norm_of_all_ranks():
    embedder = models.synchronize_batch_norm(network("frozen"))
    before = statistics(embedder)
    step(embedder, images())
    assert equal(before, statistics(embedder))
    assert not any(layer.training or layer.weight.requires_grad for layer in list_batch_norms(embedder.backbone))
