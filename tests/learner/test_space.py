"""Where embeddings lie: width, length, unit of X, start; and that the fitted network is the one that transforms."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from sklearn.decomposition import PCA

import kinfold

from .problems import blobs


def test_embeddings_have_unit_length_for_losses_on_cosine_similarity():
    rows, labels = blobs()
    by_direction = kinfold.MetricLearner(steps=3).fit(rows, labels)
    assert by_direction.distance_ == "cosine"
    assert_allclose(np.linalg.norm(by_direction.transform(rows), axis=1), 1, atol=1e-6)
    raw = kinfold.MetricLearner(loss="n-pair", steps=3).fit(rows, labels)
    assert raw.distance_ == "euclidean"
    assert np.ptp(np.linalg.norm(raw.transform(rows), axis=1)) > 0.1
    asked = kinfold.MetricLearner(distance="euclidean", steps=3).fit(rows, labels)
    assert_allclose(
        asked.transform(rows) / np.linalg.norm(asked.transform(rows), axis=1, keepdims=True),
        by_direction.transform(rows),
        atol=1e-6,
    )


@pytest.mark.parametrize("head", ["linear", "mlp"])
def test_the_model_accepts_raw_rows(head):
    rows, labels = blobs()
    learner = kinfold.MetricLearner(head=head, dim=4, steps=3).fit(rows * 7 + 100, labels)
    with torch.no_grad():
        output = learner.model_(torch.tensor(rows * 7 + 100, dtype=torch.float32))
    embeddings = torch.nn.functional.normalize(output, dim=1)
    assert not learner.model_.training
    assert_allclose(learner.transform(rows * 7 + 100), embeddings, atol=1e-6)


def test_more_rows_than_one_chunk_are_all_transformed():
    rows, labels = blobs()
    learner = kinfold.MetricLearner(steps=1, dim=2).fit(rows, labels)
    many = np.random.default_rng(0).normal(size=(9000, 10))
    assert_allclose(
        learner.transform(many)[[0, 8191, 8192, 8999]], learner.transform(many[[0, 8191, 8192, 8999]]), atol=1e-6
    )


@pytest.mark.parametrize("head", ["linear", "mlp"])
@pytest.mark.parametrize("factor", [1e-6, 1e6])
def test_scale_and_offset_of_the_columns_change_nothing(head, factor):
    rows, labels = blobs()
    options = {"head": head, "dim": 4, "steps": 50}
    plain = kinfold.MetricLearner(**options).fit(rows, labels)
    other = kinfold.MetricLearner(**options).fit(factor * (rows + 3), labels)
    assert_allclose(other.transform(factor * (rows + 3)), plain.transform(rows), atol=2e-3)


@pytest.mark.parametrize(("init", "power"), [("pca", 0.0), ("half-whiten", 0.5), ("whiten", 1.0)])
def test_a_linear_head_starts_at_principal_components(init, power):
    rows, labels = blobs(width=7)
    # nothing is learned with lr=0
    embeddings = kinfold.MetricLearner(init=init, dim=5, lr=0.0, steps=1).fit(rows, labels).transform(rows)
    pca = PCA(5).fit(rows)
    expected = pca.transform(rows) / pca.singular_values_**power
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    assert_allclose(np.abs((embeddings * expected).sum(axis=0)), (expected**2).sum(axis=0), rtol=1e-4)
    if init == "half-whiten":
        usual = kinfold.MetricLearner(dim=5, lr=0.0, steps=1).fit(rows, labels)
        assert_allclose(usual.transform(rows), embeddings)


def test_a_random_start_differs_from_principal_components():
    rows, labels = blobs()
    learners = [kinfold.MetricLearner(init=init, dim=4, lr=0.0, steps=1) for init in ("auto", "random")]
    auto, random = (learner.fit(rows, labels).transform(rows) for learner in learners)
    assert not np.allclose(auto, random)


@pytest.mark.parametrize(
    ("width", "rank", "options", "expected"),
    [
        (10, 10, {"dim": 4}, 4),
        (10, 10, {"dim": 128}, 10),
        (10, 3, {"dim": 128}, 3),
        (10, 3, {"dim": 128, "init": "random"}, 10),
        (10, 10, {"dim": 128, "head": "mlp"}, 128),
        (300, 300, {"dim": 128}, 47),  # 48 rows
    ],
)
def test_dim_is_an_upper_bound(width, rank, options, expected):
    rows, labels = blobs(width=rank)
    if rank < width:
        rows = rows @ np.random.default_rng(1).normal(size=(rank, width))
    learner = kinfold.MetricLearner(steps=2, **options).fit(rows, labels)
    assert learner.transform(rows).shape == (len(rows), expected)
    assert len(learner.get_feature_names_out()) == expected
    assert learner.get_feature_names_out()[0] == "metriclearner0"


def test_wide_and_tall_data_start_at_the_same_components():
    """With fewer rows than columns, the same principal components are computed in another way."""
    rows, labels = blobs(classes=4, items=5, width=19)
    wide = np.hstack([rows, np.zeros((20, 30))])
    options = {"dim": 6, "lr": 0.0, "steps": 1}
    tall = kinfold.MetricLearner(**options).fit(rows, labels).transform(rows)
    assert_allclose(kinfold.MetricLearner(**options).fit(wide, labels).transform(wide), tall, atol=1e-5)
