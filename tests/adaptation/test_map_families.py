"""Linear maps that are computed together have the distances of those that are fitted one by one."""

import numpy as np
import pytest
import scipy.linalg
import torch

from kinfold.adaptation import map_families
from kinfold.adaptation.candidates import LinearCandidate
from kinfold.adaptation.map_families import MapFamilies, fit_candidate
from kinfold.models.linear_maps import LinearMapFitter
from kinfold.models.moments import compute_moments

CANDIDATES = [
    LinearCandidate("pca"),
    LinearCandidate("pca", 3),
    LinearCandidate("half-whiten", None, 0.0),
    LinearCandidate("half-whiten", 4, 0.3),
    LinearCandidate("whiten", None, 0.2),
    *(LinearCandidate("within-whiten", None, shrinkage) for shrinkage in (0.05, 0.7)),
    LinearCandidate("within-whiten", 3, 0.3),
    *(LinearCandidate("plda", None, shrinkage) for shrinkage in (0.1, 0.9)),
    *(LinearCandidate("lda", None, shrinkage) for shrinkage in (0.1, 0.9)),
]


@pytest.mark.parametrize("classes", [4, 30], ids=["fewer classes than columns", "more classes than columns"])
@pytest.mark.parametrize("candidate", CANDIDATES, ids=lambda candidate: candidate.name)
def test_a_family_has_the_dot_products_of_the_map_that_is_fitted_alone(candidate, classes):
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(classes), 5)
    rows = generator.normal(size=(classes, 7))[labels] + generator.normal(size=(len(labels), 7)) * np.arange(1, 8)
    moments = compute_moments(torch.from_numpy(rows), torch.from_numpy(labels))
    others = torch.from_numpy(generator.normal(size=(20, 7)) * 3 + 5)
    embedded = MapFamilies(moments, others.float()).embed(candidate).double()
    expected = fit_candidate(LinearMapFitter(moments), candidate)(others.float().double())
    products = expected @ expected.T
    assert torch.allclose(embedded @ embedded.T, products, rtol=0, atol=1e-4 * float(products.abs().max()))


def test_the_input_stays_as_it_is():
    rows = torch.randn(12, 3)
    moments = compute_moments(rows, torch.arange(12) // 4)
    assert MapFamilies(moments, rows).embed(LinearCandidate(None)) is rows


def test_leading_directions_are_found_where_lapack_returns_none(monkeypatch):
    """It does so, without an error, for gray images in three equal channels."""
    generator = torch.Generator().manual_seed(0)
    factor = torch.randn(9, 9, generator=generator, dtype=torch.float64)
    expected = map_families.find_leading(factor @ factor.T, 3)
    monkeypatch.setattr(scipy.linalg, "eigh", lambda matrix, **_: (matrix[0, :0], matrix[:, :0]))
    leading = map_families.find_leading(factor @ factor.T, 3)
    assert leading.shape == (9, 3)
    torch.testing.assert_close(leading @ leading.T, expected @ expected.T, rtol=0, atol=1e-5)
