"""Losses whose weights carry no gradient on purpose, against the gradient with those weights written as constants."""

import pytest
import torch

from kinfold.losses.logsumexp import masked_logsumexp
from kinfold.pairs import Relation, cosine, sphere_distance
from tests.problems import batch, gradient, make

X, Y = batch(95)
RELATION = Relation.from_labels(Y)
VALID = RELATION.has_both()


def slope(value, leaf):
    return torch.autograd.grad(value, leaf, retain_graph=True)[0]


@pytest.mark.parametrize(("weighting", "options"), [("exponential", {"sigma": 0.5}), ("polynomial", {"power": 10.0})])
def test_hap2s(weighting, options):
    leaf = X.clone().requires_grad_()
    distance = sphere_distance(cosine(leaf, leaf))
    value = 0.0
    for a in VALID.nonzero().flatten().tolist():
        positives, negatives = RELATION.positives[a], RELATION.negatives[a]
        d = distance[a].tolist()
        if weighting == "exponential":
            up, down = torch.tensor(d).double() / 0.5, -torch.tensor(d).double() / 0.5
        else:
            up, down = 10 * torch.tensor(d).double().log(), -10 * torch.tensor(d).double().log()
        far = torch.softmax(up[positives], dim=0)
        near = torch.softmax(down[negatives], dim=0)
        value = value + (0.2 + far @ distance[a][positives] - near @ distance[a][negatives]).clamp(min=0)
    expected = slope(value / VALID.sum(), leaf)
    actual = gradient(make("hap2s", weighting=weighting, **options), X, Y)[1]
    torch.testing.assert_close(actual, expected, rtol=1e-6, atol=1e-8)


def test_circle():
    leaf = X.clone().requires_grad_()
    s = cosine(leaf, leaf)
    positive_weight, negative_weight = (1.4 - s.detach()).clamp(min=0), (s.detach() + 0.4).clamp(min=0)
    pull = masked_logsumexp(-80 * positive_weight * (s - 0.6), RELATION.positives)
    push = masked_logsumexp(80 * negative_weight * (s - 0.4), RELATION.negatives)
    values = torch.nn.functional.softplus(pull + push)
    expected = slope(values[VALID].mean(), leaf)
    torch.testing.assert_close(gradient(make("circle"), X, Y)[1], expected, rtol=1e-6, atol=1e-8)
    # the gradient of the whole expression is a different one
    free = masked_logsumexp(-80 * (1.4 - s).clamp(min=0) * (s - 0.6), RELATION.positives)
    free = torch.nn.functional.softplus(
        free + masked_logsumexp(80 * (s + 0.4).clamp(min=0) * (s - 0.4), RELATION.negatives)
    )
    assert (slope(free[VALID].mean(), leaf) - expected).abs().max() > 0.1


def test_adaface():
    loss = make("adaface", concentration=1.5, scale=8.0).double()
    leaf = X.clone().requires_grad_()
    lengths = X.norm(dim=1)
    quality = (1.5 * (lengths - lengths.mean()) / (lengths.std(correction=0) + 1e-3)).clamp(-1, 1)
    similarity = cosine(leaf, loss.proxies.detach())
    target = similarity.gather(1, Y[:, None]).squeeze(1)
    theta = (target.acos() - 0.4 * quality).clamp(0, torch.pi)
    logits = 8.0 * similarity.scatter(1, Y[:, None], (theta.cos() - 0.4 * (1 + quality))[:, None])
    expected = slope(torch.nn.functional.cross_entropy(logits, Y), leaf)
    torch.testing.assert_close(gradient(loss, X, Y)[1], expected, rtol=1e-6, atol=1e-8)
