"""Relational embeddings: branches that learn from the items they describe best, and the relations between them.

Zheng et al., "Deep Relational Metric Learning", ICCV 2021 (DRML). With features y (B, width) and K branches:

    y_k  the k-th of K chunks of y ("chunk"), or all of it ("full")
    v_k  = normalize(W_k y_k + b_k)                                 node
    e_k  = mean of (U_k sg(v_k) + c_k - sg(y_k))^2                  reconstruction error; sg stops the gradient
    s_ij = relu(w . (A_i(sg(y_i)) - B_j(sg(y_j))) + w0)             score of the edge from i to j, also for i = j
    r_ij = s_ij / sum_i s_ij                                        0 if all scores of a column are 0
    u_j  = sum_i r_ij v_i                                           message of the other branches
    z_j  = T [v_j, u_j] + t                                         initially T = [1, 0], t = 0
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
from kinfold.models.initialization import initialize
from kinfold.models.linear_maps import LinearMapKind

BranchInput = Literal["chunk", "full"]
_NO_SCORE = 1e-12


class RelationalOutput(NamedTuple):
    """Output of `RelationalHead`.

    Attributes:
        embeddings: z, (B, dim).
        parts: Nodes v, (B, K, part_dim).
        errors: Reconstruction errors e, (B, K).
    """

    embeddings: Tensor
    parts: Tensor
    errors: Tensor


class RelationalHead(Ensemble):
    """The head of DRML (Zheng et al., ICCV 2021). In evaluation it returns z alone. Formulas: see the module.

    Args:
        width: Dimension of the features; a multiple of `branches` if `branch_input` is "chunk".
        dim: Dimension of the embeddings, a multiple of `branches`.
        branches: K, the number of branches.
        branch_input: "chunk" gives every branch a chunk of the features, as in the released code. "full" gives every
            branch all features, as in the figure of the paper.
        representation_weight: Weight of the loss of z in J.
        reconstruction_weight: Weight of the reconstruction error in J. Only the decoders U, c learn from it, so it only
            scales their learning rate.

    Raises:
        ValueError: `branches` does not divide `dim` or `width`, a weight is negative, or `branch_input` is unknown.

    Examples:
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
        input_width = width if branch_input == "full" else divide_evenly(width, branches, "width of the features")
        self.branch_input = branch_input
        self.reconstruction_weight = reconstruction_weight
        self.nodes = ParallelLinear(branches, input_width, part_dim)
        self.decoders = ParallelLinear(branches, part_dim, input_width)
        self.sources = ParallelLinear(branches, input_width, part_dim)
        self.targets = ParallelLinear(branches, input_width, part_dim)
        self.score = nn.Linear(part_dim, 1)
        self.relation = nn.Linear(2 * part_dim, part_dim)
        nn.init.kaiming_normal_(self.score.weight, mode="fan_out")
        nn.init.zeros_(self.score.bias)
        nn.init.eye_(self.relation.weight)  # [1, 0]: initially the embedding is the concatenated nodes
        nn.init.zeros_(self.relation.bias)

    def initialize(self, features: Tensor, how: LinearMapKind) -> None:
        """Initialize every branch from the principal components of its chunk of the features (N, width)."""
        if self.branch_input == "full" or not isinstance(features, Tensor):
            raise ValueError(
                "branches are initialized from the principal components of their chunk of the features: "
                'branch_input="chunk", or init = "random"'
            )
        for number, chunk in enumerate(self.split_features(features).unbind(dim=1)):
            part = nn.Linear(chunk.shape[1], self.part_dim)
            initialize(part, chunk, how)
            with torch.no_grad():
                self.nodes.weight[number].copy_(part.weight)
                self.nodes.bias[number].copy_(part.bias)

    def output(self, features: Tensor) -> RelationalOutput:
        inputs = self.split_features(features)
        nodes = normalize_parts(self.nodes(inputs))  # (B, K, part_dim)
        decoded = promote_half(self.decoders(nodes.detach()))
        errors = (decoded - inputs.detach()).square().mean(dim=2)  # (B, K)
        messages = self.compute_edge_weights(inputs.detach()).transpose(1, 2) @ nodes  # u, (B, K, part_dim)
        embeddings = self.relation(torch.cat([nodes, messages.to(nodes.dtype)], dim=2))
        return RelationalOutput(embeddings.flatten(1), nodes, errors)

    def split_features(self, features: Tensor) -> Tensor:
        """Return the input of each branch: (B, K, width / K), or (B, 1, width) if all have the same."""
        if self.branch_input == "full":
            return features[:, None]
        return features.reshape(-1, self.parts, features.shape[1] // self.parts)

    def compute_edge_weights(self, inputs: Tensor) -> Tensor:
        """Return r (B, K, K), from the branch of a row to that of a column; columns sum to one, or are zero."""
        # w . (A_i - B_j) = w . A_i - w . B_j: two numbers per branch instead of K^2 vectors
        weight = self.score.weight
        source = promote_half(nn.functional.linear(self.sources(inputs), weight))  # (B, K, 1)
        target = promote_half(nn.functional.linear(self.targets(inputs), weight))
        scores = torch.relu(source - target.transpose(1, 2) + self.score.bias)
        return scores / scores.sum(dim=1, keepdim=True).clamp_min(_NO_SCORE)

    def assignment(self, output: RelationalOutput) -> Tensor:
        """Assign each item to the branch that reconstructs it best, the first of several; branches are not balanced."""
        best = output.errors.detach().argmin(dim=1)
        return nn.functional.one_hot(best, self.parts).bool()

    def terms(self, output: RelationalOutput) -> dict[str, ObjectiveTerm]:
        return {"reconstruction": ObjectiveTerm(self.reconstruction_weight, output.errors.mean())}

    def extra_repr(self) -> str:
        weights = (
            f"representation_weight={self.representation_weight}, reconstruction_weight={self.reconstruction_weight}"
        )
        return f"branches={self.parts}, branch_input={self.branch_input!r}, {weights}"
