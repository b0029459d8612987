"""Losses with class vectors give the same values and gradients from chunks of classes as from all classes at once."""

import pytest
import torch
from benchmarks.timing import peak_bytes

from kinfold.losses import class_logits, proxy_loss, tiles
from tests.problems import LOSSES, NUM_CLASSES, batch, generator, gradient, has_proxies, make

NAMES = [name for name in LOSSES if has_proxies(name)]
X, LABELS = batch(17, sizes=(5, 3, 0, 4, 1, 2))
RELATION = torch.rand(len(X), NUM_CLASSES, generator=generator(4)) < 0.4
RELATION[0], RELATION[1] = False, True  # a sample without a class, and one of every class
VARIANTS = [*[(name, {}) for name in NAMES], ("arcface", {"variant": "as-coded"}), ("soft-triple", {"centers": 1})]


@pytest.fixture
def chunks(monkeypatch):
    """Return a function that sets how many classes are in a chunk; zero takes all classes at once."""

    def set_size(size):
        monkeypatch.setattr(tiles, "WHOLE_PAIRS", 0 if size else 2**40)
        monkeypatch.setattr(proxy_loss, "MANY_VECTORS", 0)
        monkeypatch.setattr(class_logits, "MIN_VECTORS", size)
        monkeypatch.setattr(class_logits, "CHUNK_SCORES", 1)

    return set_size


def create(name, **options):
    loss = make(name, **options).double()
    if loss.bias is not None:
        loss.bias.data.normal_(generator=generator(3))
    return loss


def slopes(loss, *arguments, **options):
    """Value, gradient by the embeddings, and gradients by the parameters."""
    return *gradient(loss, *arguments, **options), *[parameter.grad for parameter in loss.parameters()]


@pytest.mark.parametrize("size", [1, 4, 5, 100])
@pytest.mark.parametrize(("name", "options"), VARIANTS)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_chunks_equal_all_classes_at_once(name, options, reduction, size, chunks):
    for arguments in ({"labels": LABELS}, {"relation": RELATION}):
        chunks(size)
        result = slopes(create(name, reduction=reduction, **options), X, **arguments)
        chunks(0)
        expected = slopes(create(name, reduction=reduction, **options), X, **arguments)
        torch.testing.assert_close(result, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_chunks_are_used(name, chunks, monkeypatch):
    """Otherwise the other tests would compare the whole with itself."""
    sizes = []
    plan = class_logits.ClassVectors.plan

    def count_chunks(self, samples):
        sizes.append(len(plan(self, samples)))
        return plan(self, samples)

    monkeypatch.setattr(class_logits.ClassVectors, "plan", count_chunks)
    chunks(3)
    slopes(create(name), X, LABELS)
    assert sizes
    assert min(sizes) >= NUM_CLASSES // 3


@pytest.mark.parametrize("name", NAMES)
def test_second_derivatives_are_those_of_all_classes_at_once(name, chunks):
    def penalty(size):
        chunks(size)
        loss, x = create(name), X.clone().requires_grad_()
        first = torch.autograd.grad(loss(x, LABELS), [x, *loss.parameters()], create_graph=True)
        sum(slope.square().sum() for slope in first).backward()
        return x.grad, *[parameter.grad for parameter in loss.parameters()]

    torch.testing.assert_close(penalty(4), penalty(0), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_backward_may_be_repeated_and_scaled(name, chunks):
    chunks(4)
    loss, x = create(name), X.clone().requires_grad_()
    (3.0 * loss(x, LABELS)).backward()
    scaled = x.grad.clone(), loss.proxies.grad.clone()
    x.grad = None
    loss.zero_grad()
    value = loss(x, LABELS)
    for _ in range(3):
        value.backward(retain_graph=True)
        loss.proxies.grad.mul_(1.0)  # the gradient belongs to the caller
    torch.testing.assert_close((x.grad, loss.proxies.grad), scaled, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", NAMES)
def test_only_the_gradients_that_are_wanted(name, chunks):
    chunks(4)
    expected = slopes(create(name), X, LABELS)
    loss = create(name).requires_grad_(False)
    torch.testing.assert_close(gradient(loss, X, LABELS), expected[:2])
    loss = create(name)
    loss(X, LABELS).backward()
    torch.testing.assert_close([parameter.grad for parameter in loss.parameters()], list(expected[2:]))
    with torch.no_grad():
        torch.testing.assert_close(loss(X, LABELS), expected[0])


@pytest.mark.parametrize("name", NAMES)
def test_float32_and_half_precision_agree_with_float64(name, chunks):
    chunks(4)
    expected = slopes(create(name), X, LABELS)
    loss = make(name)
    if loss.bias is not None:
        loss.bias.data.copy_(create(name).bias)
    result = [part.double() for part in slopes(loss, X.float(), LABELS)]
    torch.testing.assert_close(result, list(expected), rtol=1e-4, atol=1e-4)
    assert loss(X.bfloat16(), LABELS).dtype == torch.float32


@pytest.mark.parametrize("name", NAMES)
def test_an_embedding_or_a_proxy_that_is_not_finite_makes_the_loss_nan(name, chunks):
    chunks(4)
    x = X.clone()
    x[3, 1] = torch.nan
    assert create(name)(x, LABELS).isnan()
    loss = create(name)
    loss.proxies.data[4] = torch.inf
    assert loss(X, LABELS).isnan()


@pytest.mark.parametrize("name", NAMES)
def test_no_tensor_of_samples_and_classes_is_held(name, monkeypatch):
    monkeypatch.setattr(class_logits, "CHUNK_SCORES", 2**16)
    samples, classes = 128, proxy_loss.MANY_VECTORS
    loss = make(name, dim=2, num_classes=classes)
    x = torch.randn(samples, 2, generator=generator(0)).requires_grad_()
    labels = torch.arange(samples) * 17

    def step():
        x.grad = None
        loss.zero_grad()
        loss(x, labels).backward()

    assert peak_bytes(step) < 4 * samples * loss.proxies.shape[:-1].numel() / 2  # half of the scores in float32


@pytest.mark.parametrize("name", ["softmax", "proxy-anchor"])
def test_compiled_losses_use_chunks_too(name, chunks):
    x = torch.randn(256, 7, generator=generator(1), dtype=torch.float64)
    labels = torch.arange(256) % 600
    chunks(0)
    expected = slopes(create(name, num_classes=600), x, labels)
    chunks(100)
    torch._dynamo.reset()
    loss = create(name, num_classes=600)
    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    leaf = x.clone().requires_grad_()
    value = compiled(leaf, labels)
    value.backward()
    torch.testing.assert_close((value.detach(), leaf.grad, loss.proxies.grad), expected[:3], rtol=1e-9, atol=1e-12)


def test_few_classes_are_computed_at_once(monkeypatch):
    monkeypatch.setattr(class_logits.ClassVectors, "plan", None)
    loss = make("arcface", num_classes=proxy_loss.MANY_VECTORS - 1)
    loss(torch.randn(128, 7, generator=generator(0)), torch.arange(128)).backward()
