"""Independent heads: several small embeddings of the same features, kept decorrelated."""

from torch import Tensor

from kinfold.models.ensemble import (
    Ensemble,
    ObjectiveTerm,
    ParallelLinear,
    PartsOutput,
    check_not_negative,
    divide_evenly,
    normalize_parts,
)


class IndependentHeads(Ensemble):
    """K heads on the same features y: v_k = normalize(W_k y + b_k); the embedding is [v_1, ..., v_K].

    Every part learns from all items, and the mean cross-covariance of pairs of parts is minimized (see
    `compute_cross_covariance`).

    Args:
        width: Dimension of the features.
        dim: Dimension of the embeddings, a multiple of `branches`.
        branches: K, the number of heads.
        representation_weight: Weight of the loss of the complete embedding. 0 trains the parts alone, as in most
            ensembles.
        decorrelation_weight: Weight of the cross-covariance.

    Raises:
        ValueError: `branches` does not divide `dim`, or a weight is negative.

    Examples:
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

    def output(self, features: Tensor) -> PartsOutput:
        parts = normalize_parts(self.nodes(features[:, None]))
        return PartsOutput(parts.flatten(1), parts)

    def terms(self, output: PartsOutput) -> dict[str, ObjectiveTerm]:
        return {"decorrelation": ObjectiveTerm(self.decorrelation_weight, compute_cross_covariance(output.parts))}

    def extra_repr(self) -> str:
        weights = (
            f"representation_weight={self.representation_weight}, decorrelation_weight={self.decorrelation_weight}"
        )
        return f"branches={self.parts}, {weights}"


def compute_cross_covariance(parts: Tensor) -> Tensor:
    """Return the mean over pairs of parts k < l of |C_kl|^2, a scalar: how far they are linear functions of each other.

    C_kl = 1/B sum_i (v_ik - mean_k) (v_il - mean_l)^T,  |.|^2 the sum of the squared entries.

    DeCov (Cogswell et al., ICLR 2016) penalizes all off-diagonal entries of the covariance; here only those between
    different parts count, so that the term does not change when a part is rotated.

    Args:
        parts: (B, K, d).

    Examples:
        >>> import torch
        >>> compute_cross_covariance(torch.tensor([[[1.0], [1.0]], [[-1.0], [-1.0]]]))
        tensor(1.)
    """
    count, number, dim = parts.shape
    if number < 2 or count == 0:
        return parts[:0].sum()
    centered = (parts - parts.mean(dim=0)).flatten(1)
    squares = (centered.T @ centered / count).square()  # (K d, K d)
    blocks = squares.reshape(number, dim, number, dim).sum(dim=(1, 3))  # (K, K)
    return (blocks.sum() - blocks.diagonal().sum()) / (number * (number - 1))
