"""Independent heads: several small embeddings of the same features, kept from saying the same."""

from typing import NamedTuple

from torch import Tensor

from kinfold.models.ensemble import (
    Ensemble,
    ObjectiveTerm,
    ParallelLinear,
    check_not_negative,
    divide_evenly,
    normalize_parts,
)


class IndependentOutput(NamedTuple):
    """Parts (B, K, part_dim), unit vectors, and the same side by side (B, dim)."""

    embeddings: Tensor
    parts: Tensor


class IndependentHeads(Ensemble):
    """v_k = unit(W_k y + b_k) for k = 1..K of all features y; the embedding is v_1 .. v_K, side by side.

    Every part learns from all items, and besides the mean over pairs of parts of their `cross_covariance` is minimised,
    `decorrelation_weight` times. The loss of the whole embedding counts `representation_weight`, nothing by default:
    the parts are then trained by themselves, as in most ensembles.

    >>> import torch
    >>> head = IndependentHeads(width=8, dim=6, branches=3)
    >>> head(torch.ones(2, 8)).parts.shape, head.eval()(torch.ones(2, 8)).shape
    (torch.Size([2, 3, 2]), torch.Size([2, 6]))
    """

    def __init__(
        self,
        width: int,
        dim: int,
        branches: int = 4,
        representation_weight: float = 0.0,
        decorrelation_weight: float = 1.0,
    ) -> None:
        check_not_negative(decorrelation_weight=decorrelation_weight)
        part_dim = divide_evenly(dim, branches, "dim")
        super().__init__(branches, part_dim, representation_weight)
        self.decorrelation_weight = decorrelation_weight
        self.nodes = ParallelLinear(branches, width, part_dim)

    def output(self, features: Tensor) -> IndependentOutput:
        parts = normalize_parts(self.nodes(features[:, None]))
        return IndependentOutput(parts.flatten(1), parts)

    def terms(self, output: IndependentOutput) -> dict[str, ObjectiveTerm]:
        return {"decorrelation": ObjectiveTerm(self.decorrelation_weight, cross_covariance(output.parts))}

    def extra_repr(self) -> str:
        weights = (
            f"representation_weight={self.representation_weight}, decorrelation_weight={self.decorrelation_weight}"
        )
        return f"branches={self.parts}, {weights}"


def cross_covariance(parts: Tensor) -> Tensor:
    """How far parts (B, K, d) are linear functions of each other: the mean over pairs k < l of |C_kl|^2, a scalar.

    C_kl = 1/B sum_i (v_ik - mean_k) (v_il - mean_l)^T,  |.|^2 the sum of squares of its entries. These are the blocks
    between parts of the covariance that DeCov punishes outside its diagonal (Cogswell et al., ICLR 2016); within a part
    nothing is asked for, so that the term does not change when a part is rotated.

    >>> import torch
    >>> cross_covariance(torch.tensor([[[1.0], [1.0]], [[-1.0], [-1.0]]]))
    tensor(1.)
    """
    count, number, dim = parts.shape
    if number < 2 or count == 0:
        return parts[:0].sum()
    centred = (parts - parts.mean(dim=0)).flatten(1)
    squares = (centred.T @ centred / count).square()  # (K d, K d)
    blocks = squares.reshape(number, dim, number, dim).sum(dim=(1, 3))  # (K, K)
    return (blocks.sum() - blocks.diagonal().sum()) / (number * (number - 1))
