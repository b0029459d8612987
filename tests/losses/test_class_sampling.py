"""Sampled classes: the loss of fewer classes, drawn from a generator, with a gradient for their rows only."""

import copy

import pytest
import torch

from kinfold.losses import Nested, class_sampling, update_rows
from tests.problems import LOSSES, batch, generator, has_proxies, make

NAMES = [name for name in LOSSES if has_proxies(name)]
CLASSES = 40
X, CODES = batch(17, sizes=(5, 3, 4, 1))
LABELS = CODES * 11 + 2  # 2, 13, 24, 35
RELATION = torch.zeros(len(X), CLASSES, dtype=torch.bool).index_put((torch.arange(len(X)), LABELS), torch.tensor(True))
RELATION[0, 30] = True
OPTIMIZERS = {
    "adam": lambda p: torch.optim.Adam(p, lr=0.03, weight_decay=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.03, weight_decay=0.1),
    "sgd": lambda p: torch.optim.SGD(p, lr=0.5, momentum=0.9, weight_decay=0.01),
    "plain sgd": lambda p: torch.optim.SGD(p, lr=0.5),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.03, momentum=0.5),
}


def create(name, share=0.25, classes=CLASSES, **options):
    loss = make(name, num_classes=classes, class_share=share, **options).double()
    if loss.bias is not None:
        loss.bias.data.normal_(generator=generator(3))
    return loss


def step(loss, **arguments):
    """Value, gradient by the embeddings, and dense gradients by the parameters."""
    x = X.clone().requires_grad_()
    loss.zero_grad()
    value = loss(x, **arguments)
    value.backward()
    return value.detach(), x.grad, *[p.grad.to_dense() if p.grad.is_sparse else p.grad for p in loss.parameters()]


@pytest.mark.parametrize("number", [0, 1, 5, 9, 17])
def test_a_draw_has_the_classes_of_the_batch_and_different_others(number):
    present = torch.tensor([0, 3, 19])
    classes = class_sampling.draw_classes(present, 20, max(number, 1) / 17, generator(number))
    assert len(classes) == 3 + max(number, 1)
    assert torch.equal(classes, classes.unique())
    assert set(present.tolist()) <= set(classes.tolist())
    assert classes.min() >= 0
    assert classes.max() < 20


@pytest.mark.parametrize("share", [0.2, 0.6])  # drawn until there are enough, and a permutation
def test_all_other_classes_are_drawn_equally_often(share):
    g, counts = generator(0), torch.zeros(12)
    for _ in range(3000):
        counts[class_sampling.draw_classes(torch.tensor([4, 5]), 12, share, g)] += 1
    assert counts[[4, 5]].tolist() == [3000, 3000]
    others = counts[[0, 1, 2, 3, *range(6, 12)]]
    expected = 3000 * share
    assert (others - expected).abs().max() < 5 * (expected * (1 - share)) ** 0.5


@pytest.mark.parametrize("arguments", [{"labels": LABELS}, {"relation": RELATION}], ids=["labels", "relation"])
@pytest.mark.parametrize("name", NAMES)
def test_the_value_is_that_of_a_loss_with_the_drawn_classes(name, arguments):
    loss = create(name)
    present = LABELS.unique() if "labels" in arguments else RELATION.any(dim=0).nonzero().squeeze(1)
    classes = class_sampling.draw_classes(present, CLASSES, 0.25, generator(0))
    small = create(name, share=1.0, classes=len(classes))
    for part, whole in zip(small.parameters(), loss.parameters(), strict=True):
        part.data = whole.data[classes]
    if "labels" in arguments:
        expected = step(small, labels=torch.searchsorted(classes, LABELS))
    else:
        expected = step(small, relation=RELATION[:, classes])
    result = step(loss, **arguments)
    torch.testing.assert_close(result[:2], expected[:2], rtol=1e-12, atol=1e-14)
    for gradient, part in zip(result[2:], expected[2:], strict=True):
        torch.testing.assert_close(gradient[classes], part, rtol=1e-12, atol=1e-14)
        assert int((gradient != 0).flatten(1).any(dim=1).sum() if gradient.dim() > 1 else 0) <= len(classes)
    assert loss.proxies.grad.is_sparse
    assert loss.proxies.grad._nnz() == len(classes) < CLASSES / 2


@pytest.mark.parametrize("name", NAMES)
def test_a_share_that_takes_all_classes_equals_the_full_loss(name):
    nearly_all = create(name, share=0.999)  # rounded up to all classes, but drawn and with a sparse gradient
    result, expected = step(nearly_all, labels=LABELS), step(create(name, share=1.0), labels=LABELS)
    assert nearly_all.proxies.grad.is_sparse
    torch.testing.assert_close(result, expected, rtol=1e-10, atol=1e-12)


def test_all_classes_are_used_in_evaluation_mode_and_for_pair_weights():
    loss, full = create("arcface"), create("arcface", share=1.0)
    torch.testing.assert_close(loss.eval()(X, LABELS), full(X, LABELS))
    assert loss.pair_weights(X, LABELS).shape == (len(X), CLASSES)


def test_draws_follow_the_generator_and_its_state_is_saved():
    loss = create("cosface")
    first = loss(X, LABELS)
    state = copy.deepcopy(loss.state_dict())
    then = [loss(X, LABELS).item() for _ in range(3)]
    assert len({first.item(), *then}) == 4
    other = create("cosface", generator=generator(9))
    other.load_state_dict(state)
    assert [other(X, LABELS).item() for _ in range(3)] == then
    assert "generator_state" not in create("cosface", share=1.0).state_dict()


def test_a_copy_draws_on_its_own():
    loss = create("cosface")
    twin = copy.deepcopy(loss)
    assert [loss(X, LABELS).item() for _ in range(2)] == [twin(X, LABELS).item() for _ in range(2)]


@pytest.mark.parametrize("share", [0.0, -0.1, 1.5])
def test_wrong_shares_are_refused(share):
    with pytest.raises(ValueError, match="class_share must be above 0 and at most 1"):
        create("arcface", share=share)


def test_wrong_labels_and_relations_are_refused_as_without_sampling():
    loss = create("arcface")
    with pytest.raises(ValueError, match="labels run from"):
        loss(X, LABELS + CLASSES)
    with pytest.raises(ValueError, match="relation to proxies"):
        loss(X, relation=RELATION[:, 1:])
    with pytest.raises(ValueError, match="classes of the samples are unknown"):
        loss(X)


def test_nested_dimensions_and_second_derivatives():
    nested = Nested(create("softmax"), dims=[3, 7])
    nested(X, LABELS).backward()
    assert nested.loss.proxies.grad.isfinite().all()
    loss, x = create("soft-triple"), X.clone().requires_grad_()
    slopes = torch.autograd.grad(loss(x, LABELS), [x, loss.proxies], create_graph=True)
    sum(slope.square().sum() for slope in slopes).backward()
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_rows_with_a_gradient_in_every_step_move_as_with_the_dense_optimizer(name):
    sampled, dense = create("softmax", share=0.999), create("softmax", share=1.0)
    row_wise, plain = update_rows(OPTIMIZERS[name](sampled.parameters())), OPTIMIZERS[name](dense.parameters())
    for _ in range(5):
        for loss, optimizer in ((sampled, row_wise), (dense, plain)):
            step(loss, labels=LABELS)
            optimizer.step()
    torch.testing.assert_close(list(sampled.parameters()), list(dense.parameters()), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_other_rows_and_their_state_stay_as_they_are(name):
    weight = torch.nn.Parameter(torch.randn(6, 3, generator=generator(0), dtype=torch.float64))
    rows = [torch.nn.Parameter(weight.detach()[k : k + 1].clone()) for k in range(6)]
    row_wise, single = update_rows(OPTIMIZERS[name]([weight])), [OPTIMIZERS[name]([row]) for row in rows]
    for number in range(12):
        used = torch.randperm(6, generator=generator(number))[:2].sort().values
        values = torch.randn(2, 3, generator=generator(100 + number), dtype=torch.float64)
        weight.grad = torch.sparse_coo_tensor(used[None], values, weight.shape, check_invariants=True)
        row_wise.step()
        for k, value in zip(used.tolist(), values, strict=True):
            rows[k].grad = value[None]
            single[k].step()
    torch.testing.assert_close(weight.detach(), torch.cat(rows).detach(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_state_of_rows_survives_a_state_dict(name):
    def train(steps, loss, optimizer):
        for _ in range(steps):
            step(loss, labels=LABELS)
            optimizer.step()

    loss = create("softmax")
    optimizer = update_rows(OPTIMIZERS[name](loss.parameters()))
    train(3, loss, optimizer)
    states = copy.deepcopy((loss.state_dict(), optimizer.state_dict()))
    train(3, loss, optimizer)
    resumed = create("softmax")
    resumed_optimizer = update_rows(OPTIMIZERS[name](resumed.parameters()))
    resumed.load_state_dict(states[0])
    resumed_optimizer.load_state_dict(states[1])
    train(3, resumed, resumed_optimizer)
    for a, b in zip(loss.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(a, b)


def test_optimizers_that_cannot_update_rows_are_refused():
    weight = torch.nn.Parameter(torch.zeros(3, 2))
    with pytest.raises(ValueError, match="Adagrad cannot update single rows; use one of Adam, AdamW"):
        update_rows(torch.optim.Adagrad([weight]))
    with pytest.raises(ValueError, match="amsgrad=True is not supported"):
        update_rows(torch.optim.Adam([weight], amsgrad=True))
