"""Several embedders as one: their unit vectors side by side."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize


class ConcatenatedEmbedder(nn.Module):
    """z = [f_1/|f_1| ; ... ; f_n/|f_n|] / sqrt(n): the cosine of two such vectors is the mean of the members' cosines.

    This is how the reality check (Musgrave et al., ECCV 2020) puts the models of its folds together.

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
    """Rows (N, d) of each member -> unit rows (N, sum of d)"""
    return normalize(torch.cat([normalize(rows, dim=1) for rows in embeddings], dim=1), dim=1)
