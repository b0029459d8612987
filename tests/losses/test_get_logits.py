"""Logits of losses with class vectors: what their cross-entropy without a margin is made of."""

import pytest
import torch
from torch.nn.functional import cross_entropy, normalize

import kinfold
from tests.problems import LOSSES, NUM_CLASSES, batch, has_proxies, make

ON_PROXIES = [name for name in LOSSES if has_proxies(name)]
X, Y = batch(61)


@pytest.mark.parametrize("name", ["softmax", "normalized-softmax", "arcface", "cosface", "sub-center-arcface"])
def test_the_loss_without_a_margin_is_the_cross_entropy_of_its_logits(name):
    loss = make(name, **({"margin": 0.0} if "face" in name else {})).double()
    for parameter in loss.parameters():
        parameter.data.add_(0.2 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    torch.testing.assert_close(cross_entropy(loss.get_logits(X), Y), loss(X, Y))


@pytest.mark.parametrize("name", ON_PROXIES)
def test_shape_gradient_and_prediction(name):
    loss = make(name)
    low = X.half().requires_grad_()
    logits = loss.get_logits(low)
    assert logits.shape == (len(X), NUM_CLASSES)
    assert logits.dtype == torch.float32
    logits.sum().backward()
    assert low.grad is not None
    vectors = loss.proxies.detach()
    first = vectors if vectors.dim() == 2 else vectors[:, 0]
    if loss.normalize:
        predicted = loss.get_logits(3 * first).argmax(dim=1)
        nearest = (normalize(first) @ normalize(vectors.flatten(0, -2)).T).argmax(dim=1)
        assert torch.equal(predicted, nearest // (len(vectors.flatten(0, -2)) // NUM_CLASSES))
    with pytest.raises(ValueError, match="dimensions"):
        loss.get_logits(X[:, :3])


def test_losses_without_class_vectors_have_none():
    assert not hasattr(kinfold.losses.create("triplet"), "get_logits")
