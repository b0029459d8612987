"""Every loss works inside `torch.func` transforms: grad gives the gradient, vmap what a loop over batches gives."""

import pytest
import torch
from torch.func import functional_call, grad, grad_and_value, hessian, jvp, vmap

import kinfold
from kinfold.dro import KL, Average, Robust
from tests.losses.test_values import PAIR_CASES, PROXY_CASES, ids
from tests.problems import LOSSES, batch, draws, generator, gradient, has_proxies, make

DETERMINISTIC = [name for name in LOSSES if not draws(name)]
ON_PAIRS = [name for name in DETERMINISTIC if not has_proxies(name)]
VARIANTS = [case for case in (*PAIR_CASES, *PROXY_CASES) if case[1]]
X, Y = batch(31)
# another class structure in every batch: the number of positives of a row differs
BATCHES = torch.stack([X, X.flip(1), X + torch.randn(X.shape, generator=generator(3), dtype=X.dtype)])
LABELS = torch.stack([Y, Y.flip(0), Y % 2])


def same(value, expected):
    torch.testing.assert_close(value, expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", LOSSES)
def test_grad_is_the_gradient(name):
    value, slope = gradient(make(name).double(), X, Y)
    by_transform, value_again = grad_and_value(make(name).double())(X, Y)
    same(value_again, value)
    same(by_transform, slope)


@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=ids)
def test_grad_is_the_gradient_for_every_variant(name, options):
    loss = make(name, **options).double()
    same(grad(loss)(X, Y), gradient(loss, X, Y)[1])


@pytest.mark.parametrize("name", ON_PAIRS)
def test_grad_by_the_references_is_the_gradient(name):
    r, z = batch(32)
    loss, items = make(name).double(), torch.arange(len(z))
    options = {"ref_labels": z, "ids": items + 5, "ref_ids": items}
    leaf = r.clone().requires_grad_()
    loss(X, Y, ref_embeddings=leaf, **options).backward()
    same(grad(lambda references: loss(X, Y, ref_embeddings=references, **options))(r), leaf.grad)


@pytest.mark.parametrize("name", [n for n in LOSSES if list(make(n).parameters())])
def test_grad_by_the_parameters_is_the_gradient(name):
    loss = make(name).double()
    parameters = {key: value.detach() for key, value in loss.named_parameters()}
    slopes = grad(lambda values: functional_call(loss, values, (X, Y)))(parameters)
    loss(X, Y).backward()
    for key, parameter in loss.named_parameters():
        same(slopes[key], parameter.grad)


@pytest.mark.parametrize(("name", "options"), [*[(n, {}) for n in DETERMINISTIC], *VARIANTS], ids=ids)
def test_vmap_equals_a_loop_over_batches(name, options):
    loss = make(name, **options).double()
    expected = [gradient(loss, x, y) for x, y in zip(BATCHES, LABELS, strict=True)]
    slopes, values = vmap(grad_and_value(loss))(BATCHES, LABELS)
    same(values, torch.stack([value for value, _ in expected]))
    same(slopes, torch.stack([slope for _, slope in expected]))
    same(vmap(loss, in_dims=(0, None))(BATCHES, Y), torch.stack([loss(x, Y) for x in BATCHES]))


@pytest.mark.parametrize("name", DETERMINISTIC)
def test_forward_and_second_derivatives_agree_with_autograd(name):
    loss = make(name).double()
    x, y = X[:5], torch.tensor([0, 0, 1, 1, 1])
    direction = torch.randn(x.shape, generator=generator(4), dtype=x.dtype)
    same(jvp(lambda e: loss(e, y), (x,), (direction,))[1], (gradient(loss, x, y)[1] * direction).sum())
    expected = torch.autograd.functional.hessian(lambda e: loss(e, y), x)
    torch.testing.assert_close(hessian(loss)(x, y), expected, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("name", ["contrastive", "triplet", "margin", "snr", "binomial"])
def test_mined_triplets_under_grad_and_vmap(name):
    loss = make(name).double()
    triplets = kinfold.miners.create("hard")(X, Y)
    same(grad(lambda e: loss(e, Y, tuples=triplets))(X), gradient(loss, X, Y, tuples=triplets)[1])
    values = vmap(lambda e: loss(e, Y, tuples=triplets))(BATCHES)
    same(values, torch.stack([loss(x, Y, tuples=triplets) for x in BATCHES]))


@pytest.mark.parametrize("group", ["batch", "sign", "anchor", "anchor-sign", "class"])
@pytest.mark.parametrize("weighting", [Average(), KL(0.3)], ids=repr)
def test_robust_losses_of_every_grouping(group, weighting):
    loss = Robust("binomial", weighting, group=group)
    same(grad(loss)(X, Y), gradient(loss, X, Y)[1])
    same(vmap(loss, in_dims=(0, None))(BATCHES, Y), torch.stack([loss(x, Y) for x in BATCHES]))


def test_a_large_batch_that_is_otherwise_processed_in_row_chunks():
    x = torch.randn(1100, 4, generator=generator(5), dtype=torch.float64)
    y = torch.arange(1100) // 4
    loss = make("multi-similarity")
    same(grad(loss)(x, y), gradient(loss, x, y)[1])


def test_checks_of_labels_and_relations_are_left_out_inside_a_transform_alone():
    loss = make("proxy-nca").double()
    with pytest.raises(ValueError, match="reindex"):
        loss(X, Y + 100)
    degrees = torch.rand(3, len(X), len(X), generator=generator(6), dtype=torch.float64)
    pairs = make("binomial")
    values = vmap(lambda x, degree: pairs(x, relation=degree))(BATCHES, degrees)
    same(values, torch.stack([pairs(x, relation=d) for x, d in zip(BATCHES, degrees, strict=True)]))
