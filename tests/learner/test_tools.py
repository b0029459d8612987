"""The estimator in tools of scikit-learn: pipelines, searches, folds by class, copies on disk and in memory."""

import copy
import pickle

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, GroupKFold, RandomizedSearchCV, StratifiedKFold, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import kinfold

from .problems import blobs, hidden_classes


def test_a_pipeline_with_a_scaler_and_nearest_neighbors_works():
    rows, labels = hidden_classes()
    names = np.array([f"kind {label}" for label in labels])
    train = np.arange(len(rows)) % 2 == 0
    neighbors = KNeighborsClassifier(3)
    plain = make_pipeline(StandardScaler(), neighbors).fit(rows[train], names[train])
    learned = make_pipeline(StandardScaler(), kinfold.MetricLearner(lr=3e-3), neighbors).fit(rows[train], names[train])
    assert learned.score(rows[~train], names[~train]) > plain.score(rows[~train], names[~train]) + 0.15
    assert set(learned.predict(rows[:5])) <= set(names)


def test_a_grid_search_covers_losses_and_learning_rates():
    rows, labels = blobs()
    grid = {"loss": ["margin", "multi-similarity", "proxy-anchor", "softmax"], "lr": [1e-4, 1e-2]}
    search = GridSearchCV(kinfold.MetricLearner(steps=5), grid, cv=StratifiedKFold(2), error_score="raise")
    search.fit(rows, labels)
    assert len(search.cv_results_["params"]) == 8
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_estimator_.transform(rows).shape == (len(rows), 10)


def test_a_random_search_may_draw_numpy_numbers():
    rows, labels = blobs()
    ranges = {"dim": np.arange(2, 5), "steps": np.arange(1, 4), "lr": np.float32([1e-3]), "random_state": np.arange(3)}
    search = RandomizedSearchCV(kinfold.MetricLearner(), ranges, n_iter=3, cv=StratifiedKFold(2), error_score="raise")
    assert search.fit(rows, labels).best_params_["dim"] in (2, 3, 4)


def test_folds_by_class_score_on_unseen_classes():
    rows, labels = hidden_classes()
    folds = GroupKFold(4)
    learner = kinfold.MetricLearner(lr=3e-3)
    scores = cross_val_score(learner, rows, labels, groups=labels, cv=folds, error_score="raise")
    plain = [
        kinfold.metrics.evaluate(rows[test], labels[test], metrics=["recall@1"])["recall@1"]
        for _, test in folds.split(rows, labels, groups=labels)
    ]
    assert (scores > np.array(plain) + 0.1).all()


@pytest.mark.parametrize("copied", [lambda one: pickle.loads(pickle.dumps(one)), copy.deepcopy], ids=["pickle", "copy"])
@pytest.mark.parametrize(
    "options", [{}, {"loss": "soft-triple"}, {"head": "mlp", "validation": 0.3, "loss": "angular"}]
)
def test_copies_give_equal_embeddings(copied, options):
    rows, labels = blobs()
    learner = kinfold.MetricLearner(steps=4, **options).fit(rows, labels)
    other = copied(learner)
    assert_array_equal(other.transform(rows), learner.transform(rows))
    assert other.score(rows, labels) == learner.score(rows, labels)
    assert other.get_params() == learner.get_params()


def test_a_clone_has_the_parameters_and_no_fitted_state():
    rows, labels = blobs()
    learner = kinfold.MetricLearner(steps=4, loss_options={"margin": 0.3}).fit(rows, labels)
    other = clone(learner)
    assert other.get_params() == learner.get_params()
    with pytest.raises(NotFittedError):
        other.transform(rows)
    assert_array_equal(other.fit(rows, labels).transform(rows), learner.transform(rows))


@pytest.mark.parametrize("options", [{}, {"loss": "proxy-nca"}, {"head": "mlp"}, {"validation": 0.3}])
def test_a_seed_makes_fit_reproducible_without_the_global_generators(options):
    rows, labels = blobs()

    def embedded(seed):
        return kinfold.MetricLearner(steps=8, random_state=seed, **options).fit(rows, labels).transform(rows)

    first = embedded(3)
    np.random.seed(12345)
    torch.manual_seed(12345)
    state = torch.get_rng_state(), np.random.get_state()[1].tolist(), np.random.get_state()[2]
    assert_array_equal(embedded(3), first)
    assert_array_equal(embedded(np.int64(3)), first)
    assert not np.array_equal(embedded(4), first)
    embedded(None)
    assert torch.equal(torch.get_rng_state(), state[0])
    assert (np.random.get_state()[1].tolist(), np.random.get_state()[2]) == state[1:]


def test_fits_differ_without_a_seed_and_with_a_shared_random_state():
    rows, labels = blobs()
    learner = kinfold.MetricLearner(steps=3, random_state=None)
    assert not np.array_equal(learner.fit(rows, labels).transform(rows), learner.fit(rows, labels).transform(rows))
    embeddings = []
    for state in (np.random.RandomState(0), np.random.RandomState(0)):
        learner = kinfold.MetricLearner(steps=3, random_state=state)
        embeddings.append([learner.fit(rows, labels).transform(rows) for _ in range(2)])
    assert_array_equal(embeddings[0], embeddings[1])
    assert not np.array_equal(*embeddings[0])


def test_rows_of_any_number_type_and_labels_of_any_type_are_accepted():
    rows, labels = blobs()
    rows = np.round(rows * 8) / 8  # exact in every type below
    expected = kinfold.MetricLearner(steps=3).fit(rows, labels).transform(rows)
    assert expected.dtype == np.float32
    for dtype in (np.float32, np.float16):
        assert_array_equal(kinfold.MetricLearner(steps=3).fit(rows.astype(dtype), labels).transform(rows), expected)
    for other in (labels - 10**9, labels.astype(float), [f"{label:02}" for label in labels]):
        learner = kinfold.MetricLearner(steps=3).fit(rows, other)
        assert_array_equal(learner.transform(rows), expected)
        assert_array_equal(learner.classes_, np.unique(other))
        assert learner.score(rows, other) == learner.score(rows, labels)


def test_fit_and_transform_do_not_change_their_arguments():
    rows, labels = blobs()
    rows, labels = rows.astype(np.float32), labels.copy()
    kept = rows.copy(), labels.copy()
    rows.flags.writeable = labels.flags.writeable = False
    kinfold.MetricLearner(steps=3).fit(rows, labels).transform(rows)
    assert_array_equal(rows, kept[0])
    assert_array_equal(labels, kept[1])
