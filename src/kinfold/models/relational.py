"""Relational embeddings: branches that learn from the items they describe best, and what each says to the others.

Zheng et al., "Deep Relational Metric Learning", ICCV 2021 (DRML). With features y (B, width) and K branches:

    y_k  the k-th of K stretches of y ("chunk"), or all of it ("full")
    v_k  = unit(W_k y_k + b_k)                                      node
    e_k  = mean of (U_k sg(v_k) + c_k - sg(y_k))^2                  reconstruction error; sg: no gradient passes
    s_ij = relu(w . (A_i(sg(y_i)) - B_j(sg(y_j))) + w0)             score of the edge from i to j, i = j among them
    r_ij = s_ij / sum_i s_ij                                        0 where all scores of a column are
    u_j  = sum_i r_ij v_i                                           what the others say
    z_j  = T [v_j, u_j] + t                                         T starts as [1, 0], t as 0
    z    = z_1 .. z_K                                               the embedding

    J = sum_k L_k(v_k of the items with argmin_l e_l = k) + representation_weight L(z)
        + reconstruction_weight mean of e_k over items and branches
"""

from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from kinfold import registry
from kinfold.models.ensemble import (
    Ensemble,
    ObjectiveTerm,
    ParallelLinear,
    check_not_negative,
    divide_evenly,
    normalize_parts,
    promote_half,
)
from kinfold.models.initialization import Initialization, initialize

BranchInput = Literal["chunk", "full"]
_NO_SCORE = 1e-12


class RelationalOutput(NamedTuple):
    """Embeddings z (B, dim), nodes v (B, K, part_dim) and reconstruction errors e (B, K)."""

    embeddings: Tensor
    parts: Tensor
    errors: Tensor


class RelationalHead(Ensemble):
    """The head of DRML; in evaluation it gives z alone, of all branches.

    branch_input: "chunk" gives every branch its own stretch of the features, as the released code does; "full" gives
        all of them all features, as the paper draws it
    representation_weight, reconstruction_weight: in J. Nothing but the decoders U, c learns from the reconstruction, so
        that its weight only scales their learning rate

    >>> head = RelationalHead(width=8, dim=4, branches=2)
    >>> head(torch.ones(3, 8)).parts.shape, head.eval()(torch.ones(3, 8)).shape
    (torch.Size([3, 2, 2]), torch.Size([3, 4]))
    """

    def __init__(
        self,
        width: int,
        dim: int,
        branches: int = 4,
        branch_input: BranchInput = "chunk",
        representation_weight: float = 1.0,
        reconstruction_weight: float = 1.0,
    ) -> None:
        if branch_input not in get_args(BranchInput):
            near = registry.suggest(branch_input, get_args(BranchInput))
            raise ValueError(
                f"branch_input is {' or '.join(map(repr, get_args(BranchInput)))}, got {branch_input!r}{near}"
            )
        check_not_negative(reconstruction_weight=reconstruction_weight)
        part_dim = divide_evenly(dim, branches, "dim")
        super().__init__(branches, part_dim, representation_weight)
        split_features = width if branch_input == "full" else divide_evenly(width, branches, "width of the features")
        self.branch_input = branch_input
        self.reconstruction_weight = reconstruction_weight
        self.nodes = ParallelLinear(branches, split_features, part_dim)
        self.decoders = ParallelLinear(branches, part_dim, split_features)
        self.sources = ParallelLinear(branches, split_features, part_dim)
        self.targets = ParallelLinear(branches, split_features, part_dim)
        self.score = nn.Linear(part_dim, 1)
        self.relation = nn.Linear(2 * part_dim, part_dim)
        nn.init.kaiming_normal_(self.score.weight, mode="fan_out")
        nn.init.zeros_(self.score.bias)
        nn.init.eye_(self.relation.weight)  # [1, 0]: the embedding starts as the nodes, side by side
        nn.init.zeros_(self.relation.bias)

    def initialize(self, features: Tensor, how: Initialization) -> None:
        """Start every branch from the principal components of its own stretch of the features (N, width)."""
        if self.branch_input == "full" or not isinstance(features, Tensor):
            raise ValueError(
                "branches start from principal components of their own stretch of the features each: "
                'branch_input="chunk", or init = "random"'
            )
        for number, seen in enumerate(self.seen(features).unbind(dim=1)):
            part = nn.Linear(seen.shape[1], self.part_dim)
            initialize(part, seen, how)
            with torch.no_grad():
                self.nodes.weight[number].copy_(part.weight)
                self.nodes.bias[number].copy_(part.bias)

    def output(self, features: Tensor) -> RelationalOutput:
        seen = self.seen(features)
        nodes = normalize_parts(self.nodes(seen))  # (B, K, part_dim)
        decoded = promote_half(self.decoders(nodes.detach()))
        errors = (decoded - seen.detach()).square().mean(dim=2)  # (B, K)
        heard = self.compute_edge_weights(seen.detach()).transpose(1, 2) @ nodes  # u
        embeddings = self.relation(torch.cat([nodes, heard.to(nodes.dtype)], dim=2))
        return RelationalOutput(embeddings.flatten(1), nodes, errors)

    def seen(self, features: Tensor) -> Tensor:
        """What each branch reads: (B, K, width / K), or (B, 1, width) where all read the same."""
        if self.branch_input == "full":
            return features[:, None]
        return features.reshape(-1, self.parts, features.shape[1] // self.parts)

    def compute_edge_weights(self, seen: Tensor) -> Tensor:
        """r (B, K, K), from the branch of a row to that of a column; columns sum to one, or are zero."""
        # w . (A_i - B_j) taken apart: two numbers a branch instead of K^2 vectors
        weight = self.score.weight
        source = promote_half(nn.functional.linear(self.sources(seen), weight))  # (B, K, 1)
        target = promote_half(nn.functional.linear(self.targets(seen), weight))
        scores = torch.relu(source - target.transpose(1, 2) + self.score.bias)
        return scores / scores.sum(dim=1, keepdim=True).clamp_min(_NO_SCORE)

    def assignment(self, output: RelationalOutput) -> Tensor:
        """Each item to the branch that reconstructs it best, the first of several; no balance is sought."""
        best = output.errors.detach().argmin(dim=1)
        return nn.functional.one_hot(best, self.parts).bool()

    def terms(self, output: RelationalOutput) -> dict[str, ObjectiveTerm]:
        return {"reconstruction": ObjectiveTerm(self.reconstruction_weight, output.errors.mean())}

    def extra_repr(self) -> str:
        weights = (
            f"representation_weight={self.representation_weight}, reconstruction_weight={self.reconstruction_weight}"
        )
        return f"branches={self.parts}, branch_input={self.branch_input!r}, {weights}"
