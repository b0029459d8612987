"""What an embedding ensemble is: a head that makes several embeddings of an item, and one of them all."""

from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn


class EnsembleOutput(Protocol):
    """What an ensemble gives in training: a named tuple of float tensors of B rows each, embeddings first."""

    @property
    def embeddings(self) -> Tensor:
        """(B, dim): what is left of the ensemble when training is over"""

    @property
    def parts(self) -> Tensor:
        """(B, K, part_dim)"""


class ObjectiveTerm(NamedTuple):
    """A differentiable term of the objective, a scalar, and how much it counts."""

    weight: float
    value: Tensor


class Ensemble(nn.Module):
    """Features (B, width) to embeddings (B, dim) in evaluation, and to an `EnsembleOutput` in training.

    Training minimises  sum_k L_k(part k of its items) + representation_weight L(embeddings) + sum of the terms,  with
    a loss of its own for each part and one for the embeddings. A method is one file: a subclass that makes an output,
    and says which part learns from which items and what is minimised besides.

    parts: how many; part_dim: the width of each; representation_weight: 0 leaves the loss of the embeddings out
    """

    def __init__(self, parts: int, part_dim: int, representation_weight: float) -> None:
        super().__init__()
        check_not_negative(representation_weight=representation_weight)
        self.parts = parts
        self.part_dim = part_dim
        self.representation_weight = representation_weight

    def forward(self, features: Tensor) -> Any:
        """The embeddings, or all of the output in training."""
        output = self.output(features)
        return output if self.training else output.embeddings

    def output(self, features: Tensor) -> Any:
        """Every field that the parts, `assignment` and `terms` need; of each row by that row alone."""
        raise NotImplementedError(f"{type(self).__name__} does not say what it gives")

    def assignment(self, output: Any) -> Tensor | None:
        """(B, K), boolean: which items each part learns from; None where every part learns from all."""
        return None

    def terms(self, output: Any) -> dict[str, ObjectiveTerm]:
        """By name, what is minimised besides the losses; of the output of the global batch."""
        return {}


class ParallelLinear(nn.Module):
    """K affine maps side by side: (B, K, width) -> (B, K, dim), map k of row k. Where all read the same: (B, 1, width).

    Weights start normal with variance 2 / dim ("fan out"), biases at zero.
    """

    def __init__(self, count: int, width: int, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(count, dim, width))
        self.bias = nn.Parameter(torch.zeros(count, dim))
        for matrix in self.weight:
            nn.init.kaiming_normal_(matrix, mode="fan_out")

    def forward(self, rows: Tensor) -> Tensor:
        if rows.shape[1] > 1:
            return torch.einsum("bki,koi->bko", rows, self.weight) + self.bias
        found = nn.functional.linear(rows[:, 0], self.weight.flatten(0, 1))  # one product for all
        return found.reshape(-1, *self.bias.shape) + self.bias

    def extra_repr(self) -> str:
        count, dim, width = self.weight.shape
        return f"{count} x ({width} to {dim})"


def normalize_parts(rows: Tensor) -> Tensor:
    """Scaled to length one along the last dimension, in float32 at least; a zero row stays zero and gets no gradient.

    >>> normalize_parts(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor([[0.6000, 0.8000],
            [0.0000, 0.0000]])
    """
    rows = promote_half(rows)
    length: Tensor = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
    zero = length <= 1e-12
    # features behind a ReLU may be zero altogether: dividing by a tiny number would give a gradient of that size
    return (rows / length.masked_fill(zero, 1.0)).masked_fill(zero, 0.0)


def promote_half(rows: Tensor) -> Tensor:
    """Half precision, as autocast gives it, in float32."""
    return rows.float() if rows.dtype in (torch.float16, torch.bfloat16) else rows


def divide_evenly(total: int, count: int, what: str) -> int:
    """total / count, where that is a whole number.

    >>> divide_evenly(512, 4, "dim")
    128
    """
    if count < 1:
        raise ValueError(f"an ensemble needs at least 1 branch, got branches={count}")
    if total % count:
        below = total - total % count
        multiples = " or ".join(str(number) for number in (below, below + count) if number)
        fitting = min((n for n in range(1, total + 1) if total % n == 0), key=lambda n: (abs(n - count), n))
        raise ValueError(
            f"{what}={total} cannot be shared by {count} branches alike; "
            f"choose a multiple of {count} ({multiples}), or branches={fitting}"
        )
    return total // count


def check_not_negative(**weights: float) -> None:
    for name, weight in weights.items():
        if not 0 <= weight < float("inf"):
            raise ValueError(f"{name} must be a number from 0 up, got {weight}")
