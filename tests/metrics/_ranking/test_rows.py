"""Rows are normalized by themselves, whatever their lengths."""

import pytest
import torch

from kinfold.metrics._ranking.rows import normalize_rows
from tests.metrics.embedding_sets import make_embeddings


@pytest.mark.parametrize("size", [1e-300, 1e-200, 1e-10, 1e10, 1e200, 1e300])
def test_rows_of_any_length_have_a_direction(size):
    x = make_embeddings("random", n=20, d=5, dtype=torch.float64)[0]
    expected = torch.nn.functional.normalize(x)
    torch.testing.assert_close(normalize_rows(x * size), expected, rtol=1e-12, atol=1e-12)
    mixed = torch.cat([x[:5] * size, x[5:], torch.zeros(1, 5, dtype=torch.float64)])
    torch.testing.assert_close(normalize_rows(mixed)[:20], expected, rtol=1e-12, atol=1e-12)
    assert not normalize_rows(mixed)[20].any()
