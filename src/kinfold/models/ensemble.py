"""Ensemble heads: several embeddings of an item, the parts, and one embedding of all parts."""

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from kinfold.pairs import Relation


class EnsembleOutput(Protocol):
    """Output of an ensemble in training: a named tuple of float tensors with B rows each, embeddings first."""

    @property
    def embeddings(self) -> Tensor:
        """The embedding that is used after training, (B, dim)."""

    @property
    def parts(self) -> Tensor:
        """Embeddings of the K parts, (B, K, part_dim)."""


class PartsOutput(NamedTuple):
    """Output of an ensemble that returns nothing but its embeddings.

    Attributes:
        embeddings: The embedding that is used after training, (B, dim).
        parts: Embeddings of the K parts, (B, K, part_dim).
    """

    embeddings: Tensor
    parts: Tensor


class ObjectiveTerm(NamedTuple):
    """A differentiable scalar that is added to the objective, and its weight."""

    weight: float
    value: Tensor


@dataclass(frozen=True)
class ItemGrouping:
    """Training items are put into groups by k-means on their embeddings, again and again while training goes on.

    Args:
        count: Number of groups.
        every: Epochs between two groupings; the first is before the first step.
        within_class: Standardize the embeddings of each class before, so that groups are about what classes share.
    """

    count: int
    every: int = 1
    within_class: bool = False

    def __post_init__(self) -> None:
        if self.count < 1 or self.every < 1:
            raise ValueError(f"count and every must be at least 1, got {self.count} and {self.every}")


class Ensemble(nn.Module):
    """Head from features (B, width) to embeddings (B, dim) in evaluation, and to an `EnsembleOutput` in training.

    Training minimizes

        part_weight sum_k L_k(part k of its items) + representation_weight L(embeddings) + sum of the terms

    with one loss for each part and one for the embeddings. A new method is a subclass that implements `output`, and
    what it needs of the rest: `assignment` (items of a part), `select_pairs` (pairs of a part), `terms` and
    `labeled_terms` (auxiliary objectives), and with `grouping` (periodic clustering) `assign_groups` and `relabel`.

    Args:
        parts: K, the number of parts.
        part_dim: Dimension of each part.
        representation_weight: Weight of the loss of the embeddings; 0 leaves it out.

    Attributes:
        part_weight: Weight of the losses of the parts; 0 leaves them out.
        grouping: How training items are put into groups; None if the method needs no groups.

    Raises:
        ValueError: `representation_weight` is negative or not finite.
    """

    part_weight: float = 1.0
    grouping: ItemGrouping | None = None

    def __init__(self, parts: int, part_dim: int, representation_weight: float) -> None:
        super().__init__()
        check_not_negative(representation_weight=representation_weight)
        self.parts = parts
        self.part_dim = part_dim
        self.representation_weight = representation_weight

    def forward(self, features: Tensor) -> Any:
        """Return the embeddings, or the complete output in training."""
        output = self.output(features)
        return output if self.training else output.embeddings

    def output(self, features: Tensor) -> Any:
        """Compute all fields that the losses, `assignment` and `terms` need; each row depends on that row alone."""
        raise NotImplementedError(f"{type(self).__name__} has no method output(features)")

    def assignment(self, output: Any) -> Tensor | None:
        """Return which items each part learns from, boolean (B, K); None if every part learns from all."""
        return None

    def assign_groups(self, groups: Tensor) -> Tensor | None:
        """Return which items each part learns from, boolean (B, K), by their groups (B,); None if from all."""
        return None

    def count_classes(self, num_classes: int) -> int:
        """Return the number of classes that the parts learn from, for losses with parameters for each class."""
        return num_classes

    def relabel(self, part: int, labels: Tensor, groups: Tensor | None) -> Tensor:
        """Return the labels (B,) that a part learns from; `groups` are those of the items, None without `grouping`."""
        return labels

    def select_pairs(self, output: Any, relation: Relation) -> list[Relation] | None:
        """Return the pairs that each part learns from, one relation per part; None if from all pairs."""
        return None

    def terms(self, output: Any) -> dict[str, ObjectiveTerm]:
        """Return the terms that are added to the losses, by name, for the output of the global batch."""
        return {}

    def labeled_terms(self, output: Any, relation: Relation) -> dict[str, ObjectiveTerm]:
        """Return further terms, which depend on which items of the global batch are positives and negatives."""
        return {}


class ParallelLinear(nn.Module):
    """K linear layers in parallel: (B, K, width) -> (B, K, dim), layer k for row k; (B, 1, width) is shared by all.

    Initial weights are normal with variance 2 / dim ("fan out"), biases are zero.

    Args:
        count: K, the number of layers.
        width: Input dimension.
        dim: Output dimension.
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
        outputs = nn.functional.linear(rows[:, 0], self.weight.flatten(0, 1))  # one product for all
        return outputs.reshape(-1, *self.bias.shape) + self.bias

    def extra_repr(self) -> str:
        count, dim, width = self.weight.shape
        return f"{count} x ({width} to {dim})"


def normalize_parts(rows: Tensor) -> Tensor:
    """Scale to unit length along the last dimension, at least in float32; a zero row stays zero and gets no gradient.

    Not `kinfold.pairs.normalize`, which rounds differently: the published runs of DRML used this formula, and rounding
    alone moves their recall@1 by up to 0.14 points (`benchmarks.drml` on features, two losses and two seeds).

    Examples:
        >>> normalize_parts(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
        tensor([[0.6000, 0.8000],
                [0.0000, 0.0000]])
    """
    rows = promote_half(rows)
    length: Tensor = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
    zero = length <= 1e-12
    # features after a ReLU may all be zero: dividing by a tiny number would give a huge gradient
    return (rows / length.masked_fill(zero, 1.0)).masked_fill(zero, 0.0)


def promote_half(rows: Tensor) -> Tensor:
    """Convert half precision, as autocast returns it, to float32."""
    return rows.float() if rows.dtype in (torch.float16, torch.bfloat16) else rows


def divide_evenly(total: int, count: int, what: str) -> int:
    """Return total / count; ValueError if it is not an integer.

    Examples:
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
            f"{what}={total} cannot be divided evenly by {count} branches; "
            f"choose a multiple of {count} ({multiples}), or branches={fitting}"
        )
    return total // count


def check_not_negative(**weights: float) -> None:
    """Raise a ValueError for the first weight that is negative or not finite."""
    for name, weight in weights.items():
        if not 0 <= weight < float("inf"):
            raise ValueError(f"{name} must be a number of at least 0, got {weight}")
