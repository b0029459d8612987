"""Listed pairs, gathered in chunks: values, gradients, second gradients, and one tensor on both sides."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from kinfold.pairs import gather
from kinfold.pairs.gather import gather_dot, gather_squared_euclidean

GENERATOR = torch.Generator().manual_seed(5)
X = torch.randn(6, 4, dtype=torch.float64, generator=GENERATOR)
Y = torch.randn(5, 4, dtype=torch.float64, generator=GENERATOR)
LEFT, RIGHT = torch.tensor([0, 5, 5, 2, 0, 0, 3]), torch.tensor([4, 0, 1, 1, 4, 2, 3])
MEASURES = [gather_dot, gather_squared_euclidean]


@pytest.fixture(params=[1 << 20, 8], ids=["one chunk", "chunks of two"])
def chunks(request, monkeypatch):
    monkeypatch.setattr(gather, "_CHUNK_ENTRIES", request.param)


@pytest.mark.usefixtures("chunks")
@pytest.mark.parametrize("y", [X, Y], ids=["itself", "another"])
def test_values_are_those_of_a_loop(y):
    dots = [float(X[i] @ y[j]) for i, j in zip(LEFT, RIGHT, strict=True)]
    squares = [float(((X[i] - y[j]) ** 2).sum()) for i, j in zip(LEFT, RIGHT, strict=True)]
    torch.testing.assert_close(gather_dot(X, y, LEFT, RIGHT), torch.tensor(dots, dtype=torch.float64))
    torch.testing.assert_close(gather_squared_euclidean(X, y, LEFT, RIGHT), torch.tensor(squares, dtype=torch.float64))


@pytest.mark.usefixtures("chunks")
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
    scores = measure(x, x, nothing, nothing)
    scores.sum().backward()
    assert scores.shape == (0,)
    assert not x.grad.any()


def test_near_coincidence_is_exact():
    x = torch.tensor([[1.0, 1.0]])
    y = x + torch.tensor([[2.0**-20, 0.0]])
    assert gather_squared_euclidean(x, y, torch.tensor([0]), torch.tensor([0])) == 2.0**-40
