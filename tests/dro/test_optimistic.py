"""Optimistic sets against linear programming and closed forms; wrong labels lose their weight."""

import math

import numpy as np
import pytest
import torch
from scipy import optimize

from kinfold.dro import KL, OptimisticKL, Robust, TopK, Trim
from tests.dro.test_sets import check_simplex, instances
from tests.problems import generator


def test_trim_equals_linear_programming():
    for losses, source in instances(200):
        k, n = int(source.integers(1, 12)), len(losses)
        p = Trim(k).weights(losses)
        check_simplex(p)
        kept = max(1, n - k)
        bounds = [(0, 1 / kept)] * n
        solution = optimize.linprog(losses.numpy(), A_eq=np.ones((1, n)), b_eq=[1], bounds=bounds)
        assert Trim(k).value(losses).item() == pytest.approx(solution.fun, abs=1e-7, rel=1e-7)
        smallest = losses.sort().values[:kept].mean()
        assert Trim(k).value(losses).item() == pytest.approx(smallest.item(), rel=1e-9, abs=1e-12)


def test_trim_and_top_k_share_the_mean():
    losses = torch.rand(9, generator=generator(0), dtype=torch.float64)
    for k in range(1, 9):
        whole = k * TopK(k).value(losses) + (9 - k) * Trim(k).value(losses)
        assert (whole / 9).item() == pytest.approx(losses.mean().item())


def test_optimistic_kl_equals_its_closed_form_and_is_below_the_mean():
    for losses, source in instances(60):
        gamma = float(10.0 ** source.uniform(-1, 1)) * max(losses.max().item() - losses.min().item(), 1e-3)
        n, p = len(losses), OptimisticKL(gamma).weights(losses)
        check_simplex(p)
        divergence = torch.where(p > 0, p * (p * n).log(), 0.0).sum()
        closed = -gamma * (torch.logsumexp(-losses / gamma, 0) - math.log(n))
        assert OptimisticKL(gamma).value(losses).item() == pytest.approx(closed.item(), rel=1e-9, abs=1e-12)
        assert ((p * losses).sum() + gamma * divergence).item() == pytest.approx(closed.item(), rel=1e-9, abs=1e-12)
        mean = losses.mean().item()
        assert OptimisticKL(gamma).value(losses).item() <= mean + 1e-9 <= KL(gamma).value(losses).item() + 2e-9


def test_a_pair_with_a_wrong_label_has_no_gradient_under_trim():
    centers = torch.eye(4)
    x = (centers.repeat_interleave(2, 0) + 0.01 * torch.randn(8, 4, generator=generator(0))).requires_grad_()
    labels = torch.tensor([0, 0, 1, 1, 2, 2, 3, 0])  # the last one should be 3
    weights = Robust("binomial", Trim(8)).pair_weights(x, labels)
    # its pair with 3 is a wrong negative, its pairs with 0 are wrong positives
    assert not weights[7, [0, 1, 6]].any()
    assert Robust("binomial", Trim("1b"))(x, labels).isfinite()


def test_wrong_options_are_refused():
    for build in (lambda: Trim(0), lambda: Trim("b2"), lambda: OptimisticKL(0.0)):
        with pytest.raises(ValueError, match=r"must be"):
            build()
    with pytest.raises(ValueError, match="number of anchors"):
        Trim("2b").weights(torch.rand(4))
