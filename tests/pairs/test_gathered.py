"""Chosen pairs, gathered block by block: values, gradients, second gradients, and one tensor on both sides."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from kinfold.pairs import gathered
from kinfold.pairs.gathered import gathered_dot, gathered_squared_euclidean
from kinfold.pairs.measures import centred, centred_unit, normalize

GENERATOR = torch.Generator().manual_seed(5)
X = torch.randn(6, 4, dtype=torch.float64, generator=GENERATOR)
Y = torch.randn(5, 4, dtype=torch.float64, generator=GENERATOR)
LEFT, RIGHT = torch.tensor([0, 5, 5, 2, 0, 0, 3]), torch.tensor([4, 0, 1, 1, 4, 2, 3])
MEASURES = [gathered_dot, gathered_squared_euclidean]


@pytest.fixture(params=[1 << 20, 8], ids=["one block", "blocks of two"])
def blocks(request, monkeypatch):
    monkeypatch.setattr(gathered, "_AT_ONCE", request.param)


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("other", [X, Y], ids=["itself", "another"])
def test_values_are_those_of_a_loop(other):
    dots = [float(X[i] @ other[j]) for i, j in zip(LEFT, RIGHT, strict=True)]
    squares = [float(((X[i] - other[j]) ** 2).sum()) for i, j in zip(LEFT, RIGHT, strict=True)]
    torch.testing.assert_close(gathered_dot(X, other, LEFT, RIGHT), torch.tensor(dots, dtype=torch.float64))
    torch.testing.assert_close(
        gathered_squared_euclidean(X, other, LEFT, RIGHT), torch.tensor(squares, dtype=torch.float64)
    )


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("measure", MEASURES)
def test_gradients(measure):
    x, y = X.clone().requires_grad_(), Y.clone().requires_grad_()
    assert gradcheck(lambda a, b: measure(a, b, LEFT, RIGHT), (x, y))
    assert gradcheck(lambda a: measure(a, a, LEFT, RIGHT), (x,))
    assert gradgradcheck(lambda a, b: measure(a, b, LEFT, RIGHT), (x, y))
    assert gradgradcheck(lambda a: measure(a, a, LEFT, RIGHT), (x,))


@pytest.mark.parametrize("measure", MEASURES)
def test_no_pairs(measure):
    nothing = torch.zeros(0, dtype=torch.int64)
    x = X.clone().requires_grad_()
    found = measure(x, x, nothing, nothing)
    found.sum().backward()
    assert found.shape == (0,)
    assert not x.grad.any()


def test_near_coincidence_is_exact():
    x = torch.tensor([[1.0, 1.0]])
    y = x + torch.tensor([[2.0**-20, 0.0]])
    assert gathered_squared_euclidean(x, y, torch.tensor([0]), torch.tensor([0])) == 2.0**-40


def test_centred_unit_is_centring_after_normalising():
    rows = [X, X * 1e-9, X * 1e20, torch.cat([X, torch.zeros(1, 4, dtype=X.dtype)])]
    for x in rows:
        torch.testing.assert_close(centred_unit(x), centred(normalize(x)))
    x = X.clone().requires_grad_()
    assert gradcheck(centred_unit, (x,))
    assert gradgradcheck(centred_unit, (x,))
