"""Concatenated embeddings: unit rows whose cosine is the mean of the members' cosines."""

import pytest
import torch
from torch import nn

from kinfold.models.concatenated import ConcatenatedEmbedder, concatenate_embeddings
from kinfold.models.export import DeployedModel


def test_the_cosine_is_the_mean_of_the_members_cosines():
    first, second = torch.randn(2, 5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    rows = concatenate_embeddings([first, second])
    cosine = nn.functional.cosine_similarity
    expected = (cosine(first[:, None], first, dim=2) + cosine(second[:, None], second, dim=2)) / 2
    assert torch.allclose(rows @ rows.T, expected)


@pytest.mark.parametrize("scale", [1e-10, 1e-7, 1.0, 1e25])
def test_rows_of_any_length_become_unit_rows(scale):
    rows = torch.tensor([[3.0, 4.0], [1.0, 0.0]]) * scale
    expected = torch.tensor([[0.6, 0.8], [1.0, 0.0]])
    assert torch.allclose(DeployedModel(nn.Identity(), None, unit=True)(rows), expected)
    assert torch.allclose(ConcatenatedEmbedder([nn.Identity()])(rows), expected)


@pytest.mark.parametrize("scale", [0.0, 1e-13, 1e-30])
def test_rows_shorter_than_the_zero_norm_are_zero_rows(scale):
    """torch's normalize divides them by 1e-12, which gives short rows with a direction."""
    rows = torch.tensor([[3.0, 4.0]]) * scale / 5
    assert DeployedModel(nn.Identity(), None, unit=True)(rows).tolist() == [[0.0, 0.0]]
    both = concatenate_embeddings([rows, torch.tensor([[0.0, 2.0]])])
    assert both.tolist() == [[0.0, 0.0, 0.0, 1.0]]


def test_there_must_be_a_member():
    with pytest.raises(ValueError, match="at least one member"):
        ConcatenatedEmbedder([])
