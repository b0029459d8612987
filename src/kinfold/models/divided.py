"""Divided embeddings: parts of the embedding learn from parts of the data (Divide and Conquer).

Sanakoyeu et al., "Divide and Conquer the Embedding Space for Metric Learning", CVPR 2019. The training items are put
into K groups by k-means on their embeddings, every few epochs. Part k of the embedding, K-th of its dimensions,
learns from the items of group k. The embedding of all dimensions is used after training.

    z   = W y + b,   part k = its k-th slice
    J   = sum_k L_k(part k of the items of group k) + representation_weight L(z)

Not as published: a batch of the paper holds items of one group, here it holds items of all, and each part its own.
Groups of two groupings are not matched to each other, and the paper's last phase on all data is
`representation_weight` here.
"""

import torch
from torch import Tensor, nn

from kinfold.models.ensemble import Ensemble, ItemGrouping, PartsOutput, divide_evenly
from kinfold.models.initialization import initialize
from kinfold.models.linear_maps import LinearMapKind


class DividedHead(Ensemble):
    """A linear head whose slices learn from one group of items each. See the module.

    Args:
        width: Dimension of the features.
        dim: Dimension of the embeddings, a multiple of `branches`.
        branches: K, the number of slices and of groups; 4 for birds and 8 for products in the paper.
        every: Epochs between two groupings; 2 in the paper.
        representation_weight: Weight of the loss of the complete embedding.

    Raises:
        ValueError: `branches` does not divide `dim`, or a number is out of its range.

    Examples:
        >>> head = DividedHead(width=8, dim=6, branches=3)
        >>> head(torch.ones(2, 8)).parts.shape, head.eval()(torch.ones(2, 8)).shape
        (torch.Size([2, 3, 2]), torch.Size([2, 6]))
    """

    def __init__(
        self, width: int, dim: int, branches: int = 4, every: int = 2, representation_weight: float = 0.0
    ) -> None:
        super().__init__(branches, divide_evenly(dim, branches, "dim"), representation_weight)
        self.grouping = ItemGrouping(branches, every)
        self.embed = nn.Linear(width, dim)

    def initialize(self, features: Tensor, how: LinearMapKind) -> None:
        """Initialize the head from the principal components of the features (N, width)."""
        initialize(self.embed, features, how)

    def output(self, features: Tensor) -> PartsOutput:
        embeddings = self.embed(features)
        return PartsOutput(embeddings, embeddings.reshape(-1, self.parts, self.part_dim))

    def assign_groups(self, groups: Tensor) -> Tensor:
        return torch.nn.functional.one_hot(groups, self.parts).bool()
