"""Several embedders as one: their normalized embeddings, concatenated."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from kinfold.pairs import normalize


class ConcatenatedEmbedder(nn.Module):
    """Concatenate the normalized embeddings of several networks: z = [f_1/|f_1| ; ... ; f_n/|f_n|] / sqrt(n).

    The cosine of two such embeddings is the mean of the members' cosines. The reality check (Musgrave et al., ECCV
    2020) combines the models of its folds in this way.

    Args:
        members: The networks.

    Raises:
        ValueError: There are no members.

    Examples:
        >>> ConcatenatedEmbedder([nn.Identity(), nn.Identity()])(torch.tensor([[3.0, 4.0]]))
        tensor([[0.4243, 0.5657, 0.4243, 0.5657]])
    """

    def __init__(self, members: Iterable[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        if not self.members:
            raise ValueError("there must be at least one member")

    def forward(self, inputs: Tensor) -> Tensor:
        return concatenate_embeddings([member(inputs) for member in self.members])


def concatenate_embeddings(embeddings: Iterable[Tensor]) -> Tensor:
    """Normalize and concatenate the rows (N, d) of each member; returns unit rows (N, sum of d)."""
    return normalize(torch.cat([normalize(rows) for rows in embeddings], dim=1))
