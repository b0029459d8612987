"""Uncertainty sets against general solvers, on instances with ties, equal losses, single entries and extreme radii."""

import math

import numpy as np
import pytest
import torch
from scipy import optimize

from kinfold.dro import KL, Average, ChiSquare, KLBall, Simplex, TopK
from tests.dro.sets import SETS
from tests.problems import generator


def instances(count, seed=0):
    """Losses of 1 to 9 entries: spread, tied in places, all equal, nearly tied, large and small."""
    source = np.random.default_rng(seed)
    for number in range(count):
        n = int(source.integers(1, 10))
        losses = source.random(n) * 10.0 ** source.integers(-3, 3)
        kind = number % 5
        if kind == 1:
            losses = np.round(losses / losses.max() * 3) / 3
        elif kind == 2:
            losses[:] = losses[0]
        elif kind == 3:
            losses = losses[0] + 1e-9 * source.random(n)
        elif kind == 4:
            losses[int(source.integers(n))] = losses.max()
        yield torch.from_numpy(losses), source


def solve(losses, constraint):
    """max p.l over the simplex and one smooth constraint(p) >= 0, by sequential quadratic programming."""
    losses = losses.numpy()
    scale = max(np.ptp(losses), 1e-12)
    shifted = (losses - losses.min()) / scale
    n, best = len(losses), -np.inf
    conditions = [{"type": "eq", "fun": lambda p: p.sum() - 1}, {"type": "ineq", "fun": constraint}]
    starts = [np.full(n, 1 / n), *np.random.default_rng(0).dirichlet(np.ones(n), 2)]
    for start in starts:
        solution = optimize.minimize(
            lambda p: -p @ shifted,
            start,
            jac=lambda p: -shifted,
            bounds=[(0, 1)] * n,
            constraints=conditions,
            method="SLSQP",
            options={"ftol": 1e-15, "maxiter": 400},
        )
        p = solution.x
        if abs(p.sum() - 1) < 1e-9 and constraint(p) > -1e-9:
            best = max(best, p @ shifted)
    return best * scale + losses.min()


def check_simplex(p):
    assert bool((p >= 0).all())
    assert abs(p.sum().item() - 1) < 1e-9


def test_average_and_simplex():
    for losses, _ in instances(100):
        assert Average().value(losses).item() == pytest.approx(losses.mean().item(), abs=1e-12)
        assert Simplex().value(losses).item() == pytest.approx(losses.max().item(), abs=1e-12)
        ties = losses == losses.max()
        torch.testing.assert_close(Simplex().weights(losses), ties / ties.sum().double())


def test_top_k_equals_linear_programming_and_the_value_at_risk():
    for losses, source in instances(200):
        k = int(source.integers(1, 12))
        p = TopK(k).weights(losses)
        check_simplex(p)
        width = min(k, len(losses))
        assert bool((p <= 1 / width + 1e-12).all())
        bounds = [(0, 1 / width)] * len(losses)
        solution = optimize.linprog(-losses.numpy(), A_eq=np.ones((1, len(losses))), b_eq=[1], bounds=bounds)
        assert TopK(k).value(losses).item() == pytest.approx(-solution.fun, abs=1e-7, rel=1e-7)
        at_risk = min(v + (losses - v).clamp(min=0).sum().item() / width for v in losses.tolist())
        assert TopK(k).value(losses).item() == pytest.approx(at_risk, rel=1e-9, abs=1e-9)


def test_kl_equals_its_closed_form_and_the_solver():
    for losses, source in instances(60):
        gamma = float(10.0 ** source.uniform(-1, 1)) * max(losses.max().item() - losses.min().item(), 1e-3)
        n, p = len(losses), KL(gamma).weights(losses)
        check_simplex(p)
        closed = gamma * (torch.logsumexp(losses / gamma, 0) - math.log(n))
        assert KL(gamma).value(losses).item() == pytest.approx(closed.item(), rel=1e-9, abs=1e-12)
        entropy = torch.where(p > 0, p * (p * n).log(), 0.0).sum()
        assert ((p * losses).sum() - gamma * entropy).item() == pytest.approx(closed.item(), rel=1e-9, abs=1e-12)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("by", ["radius", "effective"])
def test_kl_ball_equals_its_dual(by):
    for losses, source in instances(150):
        n = len(losses)
        choice = float(source.uniform(0, 3)) if by == "radius" else float(source.uniform(1, n + 2))
        ball = KLBall(**{by: choice})
        rho = choice if by == "radius" else math.log(n / min(n, choice))
        p = ball.weights(losses)
        check_simplex(p)
        divergence = torch.where(p > 0, p * (p * n).log(), 0.0).sum().item()
        assert divergence <= rho + 1e-9
        value, values = ball.value(losses).item(), losses.numpy()
        span = max(np.ptp(values), 1e-12)

        def dual(log_t, values=values, rho=rho, n=n):
            t = math.exp(log_t)
            return t * rho + values.max() + t * math.log(np.exp((values - values.max()) / t).sum() / n)

        grid = min(np.linspace(-30, 20, 400) + math.log(span), key=dual)
        solution = optimize.minimize_scalar(
            dual, bounds=(grid - 0.3, grid + 0.3), method="bounded", options={"xatol": 1e-12}
        )
        assert value == pytest.approx(min(solution.fun, dual(grid)), abs=1e-7 * max(1, span), rel=1e-7)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("by", ["radius", "effective"])
def test_chi_square_equals_the_solver(by):
    for losses, source in instances(200):
        n = len(losses)
        choice = float(10 ** source.uniform(-2, 2)) if by == "radius" else float(source.uniform(1, n + 2))
        ball = ChiSquare(**{by: choice})
        bound = (1 + 2 * choice / n) / n if by == "radius" else 1 / min(n, choice)
        p = ball.weights(losses)
        check_simplex(p)
        assert p.square().sum().item() <= bound + 1e-9
        expected = solve(losses, lambda q, bound=bound: bound - q @ q)
        scale = max(1.0, losses.abs().max().item())
        assert ball.value(losses).item() >= expected - 1e-7 * scale
        assert ball.value(losses).item() == pytest.approx(expected, abs=1e-7 * scale)


def test_chi_square_is_mean_plus_deviation_exactly_while_all_weights_are_positive():
    inside = outside = 0
    for losses, source in instances(400, seed=3):
        n = len(losses)
        rho = float(10 ** source.uniform(-3, 1))
        variance, mean = losses.var(correction=0), losses.mean()
        formula = mean + (2 * rho * variance / n).sqrt()
        value = ChiSquare(radius=rho).value(losses)
        if n * variance >= 2 * rho * (mean - losses.min()) ** 2:
            inside += 1
            assert value.item() == pytest.approx(formula.item(), rel=1e-9, abs=1e-12)
        else:
            outside += 1
            assert value.item() <= formula.item() + 1e-12
    assert inside > 50
    assert outside > 50


@pytest.mark.parametrize("chosen", SETS, ids=repr)
def test_groups_with_masks_are_solved_one_by_one(chosen):
    losses = torch.rand(5, 3, 7, generator=generator(0), dtype=torch.float64)
    mask = torch.rand(5, 3, 7, generator=generator(1)) < 0.6
    mask[0, 0] = False
    mask[1, 1] = True
    weights, values = chosen.weights(losses, mask), chosen.value(losses, mask)
    assert not weights[~mask].any()
    for i in range(5):
        for j in range(3):
            kept = losses[i, j][mask[i, j]]
            if len(kept) == 0:
                assert values[i, j] == 0
                continue
            torch.testing.assert_close(weights[i, j][mask[i, j]], chosen.weights(kept), rtol=1e-9, atol=1e-12)
            torch.testing.assert_close(values[i, j], chosen.value(kept), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("chosen", SETS, ids=repr)
def test_the_gradient_of_the_value_is_the_weights(chosen):
    losses = torch.rand(4, 9, generator=generator(2), dtype=torch.float64).requires_grad_()
    value = chosen.value(losses)
    (slope,) = torch.autograd.grad(value.sum(), losses)
    torch.testing.assert_close(slope, chosen.weights(losses), rtol=1e-9, atol=1e-12)
    step = 1e-6
    for i in range(9):
        move = torch.zeros(9, dtype=torch.float64)
        move[i] = step
        difference = (chosen.value(losses + move) - chosen.value(losses - move)) / (2 * step)
        torch.testing.assert_close(difference, slope[:, i], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "chosen", [KL(0.001), KLBall(radius=2.0), ChiSquare(effective=3), TopK(3), Simplex()], ids=repr
)
def test_float32_is_finite_and_right(chosen):
    for losses in (torch.rand(50, generator=generator(3)), torch.rand(50, generator=generator(3)) * 1000):
        precise = chosen.weights(losses.double())
        torch.testing.assert_close(chosen.weights(losses).double(), precise, rtol=1e-3, atol=1e-3)
        assert chosen.value(losses).isfinite()
        assert chosen.value(losses).dtype == torch.float32


@pytest.mark.parametrize("chosen", SETS, ids=repr)
def test_nothing_one_entry_and_equal_losses(chosen):
    empty = torch.zeros(0, dtype=torch.float64, requires_grad=True)
    assert chosen.value(empty).item() == 0
    assert chosen.value(torch.tensor([2.5])).item() == pytest.approx(2.5)
    equal = torch.full((6,), 0.7, dtype=torch.float64)
    assert chosen.value(equal).item() == pytest.approx(0.7)


@pytest.mark.parametrize(
    "chosen", [KL(0.1), TopK(2560), KLBall(effective=2560), ChiSquare(effective=2560), Simplex()], ids=repr
)
def test_hundreds_of_thousands_of_losses_are_no_work(chosen):
    losses = torch.rand(400_000, generator=generator(4))
    p = chosen.weights(losses)  # anything that grows with the square of n would never end
    assert p.sum().item() == pytest.approx(1, abs=1e-3)


def test_top_k_by_nonzero_losses():
    losses = torch.tensor([0.0, 3.0, 0.0, 1.0])
    assert TopK(3).value(losses).item() == pytest.approx(4 / 3)
    assert TopK(3, divide="nonzero").value(losses).item() == pytest.approx(2.0)
    assert TopK(3, divide="nonzero").value(torch.zeros(4)).item() == 0


def test_wrong_options_are_refused():
    for build in (
        lambda: TopK(0),
        lambda: TopK("b2"),
        lambda: TopK(2, divide="half"),
        lambda: KL(0.0),
        lambda: KLBall(),
        lambda: KLBall(radius=1.0, effective=3),
        lambda: ChiSquare(radius=-1.0),
        lambda: ChiSquare(effective=0.5),
    ):
        with pytest.raises(ValueError, match=r"must be|pass either"):
            build()
    with pytest.raises(ValueError, match="number of anchors"):
        TopK("2b").weights(torch.rand(4))
    with pytest.raises(ValueError, match="boolean"):
        KL(1.0).weights(torch.rand(4), torch.ones(3, dtype=torch.bool))
    with pytest.raises(ValueError, match="floating point"):
        KL(1.0).weights(torch.arange(4))
