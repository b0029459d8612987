"""Gradients against finite differences, for embeddings, references and the loss' own parameters."""

import pytest
import torch
from torch.autograd import gradcheck

from kinfold.pairs import Quadruplets, Relation
from tests.losses.references import DETACHED_WEIGHTS
from tests.losses.test_values import PAIR_CASES, PROXY_CASES, TRIPLET_CASES, ids
from tests.problems import LOSSES, all_triplets_of, batch, make

ROBUST = [name for name in LOSSES if name.startswith("dro-")]


@pytest.mark.parametrize(("name", "options"), [c for c in PAIR_CASES if c[0] not in DETACHED_WEIGHTS], ids=ids)
def test_gradient_by_the_embeddings(name, options):
    x, y = batch(11, dim=4, sizes=(4, 2, 1, 3))
    loss = make(name, dim=4, **options).double()
    assert gradcheck(lambda e: loss(e, y), (x.requires_grad_(),), eps=1e-7, atol=1e-6, rtol=1e-4)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("name", "options"), [c for c in PAIR_CASES if c[0] not in DETACHED_WEIGHTS], ids=ids)
def test_gradient_by_anchors_and_references(name, options):
    x, y = batch(12, dim=4, sizes=(2, 2, 1))
    r, z = batch(13, dim=4, sizes=(3, 2, 2))
    loss = make(name, dim=4, **options).double()
    inputs = (x.requires_grad_(), r.requires_grad_())
    assert gradcheck(lambda e, f: loss(e, y, ref_embeddings=f, ref_labels=z), inputs, eps=1e-7, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize(("name", "options"), [c for c in PROXY_CASES if c[0] not in DETACHED_WEIGHTS], ids=ids)
def test_gradient_by_embeddings_and_proxies(name, options):
    x, y = batch(14, dim=4)
    loss = make(name, dim=4, **options).double()

    def value(embeddings, proxies):
        return torch.func.functional_call(loss, {"proxies": proxies}, (embeddings, y))

    inputs = (x.requires_grad_(), loss.proxies.detach().clone().requires_grad_())
    assert gradcheck(value, inputs, eps=1e-7, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize(("name", "options"), TRIPLET_CASES, ids=ids)
def test_gradient_of_triplets(name, options):
    x, y = batch(15, dim=4, sizes=(3, 2, 2))
    loss = make(name, **options).double()
    triplets = all_triplets_of(Relation.from_labels(y), limit=30)
    assert gradcheck(lambda e: loss(e, y, tuples=triplets), (x.requires_grad_(),), eps=1e-7, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("options", [{}, {"squared": True}], ids=ids)
def test_gradient_of_quadruplets(options):
    x, y = batch(17, dim=4, sizes=(3, 2, 2))
    index = torch.tensor([[0, 1, 2, 3], [4, 5, 6, 0], [2, 3, 0, 5], [6, 0, 1, 4]])
    some = torch.ones(4, dtype=torch.bool)
    tuples = Quadruplets(*index.T.contiguous(), valid=some, has_fourth=some)
    loss = make("quadruplet", **options).double()
    assert gradcheck(lambda e: loss(e, y, tuples=tuples), (x.requires_grad_(),), eps=1e-7, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("name", ROBUST)
def test_gradient_of_robust_losses(name):
    x, y = batch(11, dim=4, sizes=(4, 2, 1, 3))
    loss = make(name)
    assert gradcheck(lambda e: loss(e, y), (x.requires_grad_(),), eps=1e-7, atol=1e-6, rtol=1e-4)


def test_every_loss_is_compared_with_finite_differences_but_those_that_hold_weights_fixed():
    compared = {name for name, _ in (*PAIR_CASES, *PROXY_CASES)} | {"quadruplet", *ROBUST}
    assert compared == set(LOSSES)
    assert set(LOSSES) >= DETACHED_WEIGHTS


@pytest.mark.parametrize("name", sorted(DETACHED_WEIGHTS))
def test_fixed_weights_make_a_gradient_that_finite_differences_do_not_give(name):
    """What docs/concepts.md says of these; test_frozen_weights.py has what their gradient is."""
    x, y = batch(11, dim=4, sizes=(4, 2, 1, 3))
    assert not gradcheck(lambda e: make(name, dim=4)(e, y), (x.requires_grad_(),), eps=1e-7, raise_exception=False)


def test_gradient_by_the_boundaries_of_margin():
    x, y = batch(16, dim=4)
    loss = make("margin", num_classes=4, beta_regularization=0.1).double()

    def value(beta):
        return torch.func.functional_call(loss, {"beta": beta}, (x, y))

    beta = torch.tensor([0.9, 1.0, 1.1, 1.2], dtype=torch.float64, requires_grad=True)
    assert gradcheck(value, (beta,), eps=1e-7, atol=1e-6, rtol=1e-4)
