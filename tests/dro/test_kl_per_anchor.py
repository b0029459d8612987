"""KL with a temperature for each group: equation 7 of Qi et al. with gamma_i+ and gamma_i-."""

import math

import pytest
import torch

from kinfold.dro import KL, Robust

LABELS = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2])


def values(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_each_group_has_its_own_temperature():
    losses, gammas = values(4, 6).abs(), torch.tensor([0.1, 0.5, 1.0, 20.0], dtype=torch.float64)
    mask = torch.ones(4, 6, dtype=torch.bool)
    mask[1, 3:] = False
    mask[2] = False
    together = KL(gammas)
    for group, gamma in enumerate(gammas.tolist()):
        one = KL(gamma)
        torch.testing.assert_close(together.value(losses, mask)[group], one.value(losses[group], mask[group]))
        torch.testing.assert_close(together.weights(losses, mask)[group], one.weights(losses[group], mask[group]))


def test_the_value_is_that_of_the_equation_and_its_gradient_are_the_weights():
    embeddings = torch.nn.functional.normalize(values(8, 5))
    positive, negative = torch.linspace(0.05, 0.4, 8).double(), torch.linspace(0.5, 0.1, 8).double()
    loss = Robust("similarity-margin", (KL(positive), KL(negative)), group="anchor-sign")
    expected = 0.0
    similarity = embeddings @ embeddings.T
    for i in range(8):
        for sign, gamma in ((1, float(positive[i])), (-1, float(negative[i]))):
            same = [j for j in range(8) if j != i and (LABELS[i] == LABELS[j]) == (sign == 1)]
            hinges = [max(0.0, 0.2 + sign * (0.5 - float(similarity[i, j]))) for j in same]
            expected += gamma * math.log(sum(math.exp(value / gamma) for value in hinges) / len(hinges))
    assert loss(embeddings, LABELS).item() == pytest.approx(expected / 8, rel=1e-9)
    rows = values(3, 4).requires_grad_()
    gammas = torch.tensor([0.2, 1.0, 3.0], dtype=torch.float64)
    (gradient,) = torch.autograd.grad(KL(gammas).value(rows).sum(), rows)
    torch.testing.assert_close(gradient, KL(gammas).weights(rows.detach()))


def test_another_number_of_groups_is_an_error():
    with pytest.raises(ValueError, match="gamma has 3 values, one for each group"):
        KL(torch.ones(3)).value(values(4, 5).abs())
    with pytest.raises(ValueError, match="gamma must be positive, got 0"):
        KL(torch.tensor([1.0, 0.0]))
    with pytest.raises(ValueError, match=r"a number or a tensor \(G,\)"):
        KL(torch.ones(2, 2))


def test_a_temperature_for_each_anchor_in_one_of_two_sets_keeps_the_batch_together():
    gammas = torch.linspace(0.05, 0.4, 8)
    for sets in ((KL(gammas), KL(0.3)), (KL(0.3), KL(gammas))):
        assert not Robust("similarity-margin", sets, group="anchor-sign").supports_chunks
    assert Robust("similarity-margin", (KL(0.3), KL(0.3)), group="anchor-sign").supports_chunks
