"""Properties of the embedding space against loops over pairs."""

import itertools
import math

import numpy as np
import pytest
import torch

from kinfold.metrics import class_spectrum, embedding_space, spectrum
from tests.metrics.embedding_sets import make_embeddings


def cosine_distance(a, b):
    return 1.0 - float(a @ b) / (float(a.norm()) * float(b.norm()))


@pytest.fixture(scope="module")
def problem():
    x, labels = make_embeddings("clustered", n=90, d=7, classes=12)
    labels[-1] = 77  # a class of one
    return x.double(), torch.tensor(labels)


def test_intra_inter_density(problem):
    x, labels = problem
    within, means = [], []
    for label in labels.unique():
        members = x[labels == label]
        means.append(torch.nn.functional.normalize(members).sum(dim=0))
        pairs = [cosine_distance(a, b) for a, b in itertools.combinations(members, 2)]
        within += [np.mean(pairs)] if pairs else []
    between = [cosine_distance(a, b) for a, b in itertools.combinations(means, 2)]
    assert embedding_space.intra(x, labels) == pytest.approx(np.mean(within))
    assert embedding_space.inter(x, labels) == pytest.approx(np.mean(between))
    assert embedding_space.density(x, labels) == pytest.approx(np.mean(within) / np.mean(between))


def test_alignment_and_uniformity(problem):
    x, labels = problem
    unit = torch.nn.functional.normalize(x)
    squared = {(i, j): float((unit[i] - unit[j]).square().sum()) for i, j in itertools.combinations(range(90), 2)}
    positive = [d for (i, j), d in squared.items() if labels[i] == labels[j]]
    assert embedding_space.alignment(x, labels) == pytest.approx(np.mean(positive))
    expected = math.log(np.mean([math.exp(-2 * d) for d in squared.values()]))
    assert embedding_space.uniformity(x) == pytest.approx(expected)


def test_uniformity_in_blocks(problem, monkeypatch):
    whole = embedding_space.uniformity(problem[0])
    monkeypatch.setattr(embedding_space, "_ROWS_PER_BLOCK", 17)
    assert embedding_space.uniformity(problem[0]) == pytest.approx(whole)


def test_spectrum_in_row_chunks(monkeypatch):
    x, _ = make_embeddings("collapsed", n=400, d=9)  # singular values over six orders of magnitude
    expected = np.linalg.svd(x.double().numpy(), compute_uv=False)
    assert spectrum(x).numpy() == pytest.approx(expected, rel=1e-9)
    monkeypatch.setattr(embedding_space, "_ROWS_PER_CHUNK", 50)
    assert spectrum(x).numpy() == pytest.approx(expected, rel=1e-9)
    assert spectrum(x[:5]).shape == (5,)


def test_class_spectrum(problem):
    x, labels = problem
    result = class_spectrum(x, labels, num_values=5)
    expected = np.zeros(5)
    sizes = [int((labels == label).sum()) for label in labels.unique()]
    large_enough = [label for label, size in zip(labels.unique(), sizes, strict=True) if size > 1]
    for label in large_enough:
        values = np.linalg.svd(x[labels == label].numpy(), compute_uv=False)[:5]
        expected[: len(values)] += values / len(large_enough)
    assert result.numpy() == pytest.approx(expected)


def test_spectral_decay():
    flat = torch.ones(6, dtype=torch.float64)
    assert embedding_space.spectral_decay(flat) == pytest.approx(0.0)
    values = torch.tensor([4.0, 2.0, 1.0, 1.0], dtype=torch.float64)
    for drop in (0, 1, 2):
        share = (values[drop:] / values[drop:].sum()).numpy()
        uniform = 1 / len(share)
        assert embedding_space.spectral_decay(values, drop) == pytest.approx(
            sum(uniform * np.log(uniform / s) for s in share)
        )
    # a direction that is never used makes it large, not infinite
    assert 0 < embedding_space.spectral_decay(torch.tensor([1.0, 0.0], dtype=torch.float64)) < 40
    with pytest.raises(ValueError, match="rho@5"):
        embedding_space.spectral_decay(values, 4)
