"""What the estimator learns: on synthetic classes, digits and birds, with every loss."""

import os
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

import kinfold
from kinfold.training.config.defaults import DEFAULT_MINERS

from .problems import blobs, hidden_classes


def measure(rows, labels, name="recall@1"):
    return kinfold.metrics.evaluate(rows, labels, metrics=[name])[name]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("loss", ["margin", "multi-similarity", "proxy-anchor", "n-pair"])
@pytest.mark.parametrize("head", ["linear", "mlp"])
def test_learned_directions_separate_unseen_classes(loss, head):
    rows, labels = hidden_classes()
    train = labels < 20
    untrained = measure(rows[~train], labels[~train])
    learner = kinfold.MetricLearner(loss=loss, head=head, lr=3e-3).fit(rows[train], labels[train])
    assert learner.score(rows[~train], labels[~train]) > untrained + 0.15


def test_few_principal_components_drop_directions_of_small_variance():
    """With dim=8 the start holds only noise, and training does not recover, as the documentation warns."""
    rows, labels = hidden_classes()
    train = labels < 20
    scores = [
        kinfold.MetricLearner(dim=dim, lr=3e-3).fit(rows[train], labels[train]).score(rows[~train], labels[~train])
        for dim in (8, 24)
    ]
    assert scores[0] < 0.2 < 0.7 < scores[1]


def test_unseen_digits_of_known_classes_are_retrieved_better_than_by_pixels():
    rows, labels = load_digits(return_X_y=True)
    train = np.random.default_rng(0).random(len(labels)) < 0.5
    learner = kinfold.MetricLearner(metric="map@r").fit(rows[train], labels[train])
    # pixels: 0.53; learned: 0.71
    assert learner.score(rows[~train], labels[~train]) > measure(rows[~train], labels[~train], "map@r") + 0.1


def test_training_on_five_digits_does_not_improve_the_other_five():
    """Pixels of unseen digits find each other in 99.1 % of cases, which five classes cannot improve upon. This keeps
    the documentation honest: should it fail because learning does better, say so there."""
    rows, labels = load_digits(return_X_y=True)
    train = labels < 5
    learner = kinfold.MetricLearner().fit(rows[train], labels[train])
    learned, pixels = learner.score(rows[~train], labels[~train]), measure(rows[~train], labels[~train])
    assert pixels - 0.03 < learned < pixels


def test_birds_of_unseen_species_are_retrieved_better_than_by_the_features():
    folder = os.environ.get("KINFOLD_TEST_DATA")
    path = Path(folder or ".") / "cub200_2011_efflite0.npz"
    if folder is None or not path.is_file():
        pytest.skip("KINFOLD_TEST_DATA does not lead to cub200_2011_efflite0.npz")
    with np.load(path, allow_pickle=False) as file:
        rows, labels, test = file["feat"], file["cls"].astype(int), file["split"] == "test"
    assert measure(rows[test], labels[test]) == pytest.approx(0.577, abs=0.001)
    learner = kinfold.MetricLearner(dim=512, init="half-whiten", steps=100).fit(rows[~test], labels[~test])
    assert learner.score(rows[test], labels[test]) >= 0.59


@pytest.mark.parametrize("loss", kinfold.list("losses"))
def test_every_loss_fits(loss):
    rows, labels = blobs()
    names = np.array([f"kind {label}" for label in labels])
    learner = kinfold.MetricLearner(loss=loss, steps=5, dim=4, per_class=4).fit(rows, names)
    embeddings = learner.transform(rows)
    assert embeddings.shape == (len(rows), 4)
    assert np.isfinite(embeddings).all()
    assert len(learner.loss_curve_) == learner.n_iter_ == 5
    assert np.isfinite(learner.loss_curve_).all()
    # training changed the embeddings
    start = kinfold.MetricLearner(loss=loss, steps=5, dim=4, per_class=4, lr=0.0).fit(rows, names)
    assert not np.array_equal(start.transform(rows), embeddings)


@pytest.mark.parametrize("miner", [*kinfold.list("miners"), None])
def test_every_miner_works_with_a_loss_that_takes_it(miner):
    rows, labels = blobs()
    learner = kinfold.MetricLearner(loss="contrastive", miner=miner, steps=3).fit(rows, labels)
    assert np.isfinite(learner.loss_curve_).all()


def test_auto_mines_for_the_losses_that_need_it_and_for_no_other():
    by_distance, hard = {"margin", "contrastive"}, {"lifted", "generalized-lifted", "hap2s", "nt-xent", "supcon"}
    expected = dict.fromkeys(by_distance, "distance-weighted") | dict.fromkeys(hard, "multi-similarity")
    assert expected | {"soft-margin-triplet": "hard"} == DEFAULT_MINERS
    rows, labels = blobs()
    curves = {}
    for loss in ("margin", "contrastive", "triplet"):
        for miner in ("auto", "distance-weighted", None):
            learner = kinfold.MetricLearner(loss=loss, miner=miner, steps=5).fit(rows, labels)
            curves[loss, miner] = learner.loss_curve_
    assert curves["margin", "auto"] == curves["margin", "distance-weighted"] != curves["margin", None]
    assert curves["contrastive", "auto"] == curves["contrastive", "distance-weighted"] != curves["contrastive", None]
    assert curves["triplet", "auto"] == curves["triplet", None] != curves["triplet", "distance-weighted"]


def test_options_reach_loss_and_miner():
    rows, labels = blobs()
    with pytest.raises(ValueError, match="did you mean 'margin'"):
        kinfold.MetricLearner(loss_options={"margn": 0.1}, steps=1).fit(rows, labels)
    with pytest.raises(ValueError, match="did you mean 'lower_cutoff'"):
        kinfold.MetricLearner(miner_options={"lower_cutof": 0.1}, steps=1).fit(rows, labels)
    plain = kinfold.MetricLearner(loss="contrastive", steps=3).fit(rows, labels).loss_curve_
    wide = (
        kinfold.MetricLearner(loss="contrastive", loss_options={"margin": 3.0}, steps=3).fit(rows, labels).loss_curve_
    )
    assert wide[0] > plain[0]
    per_class = kinfold.MetricLearner(loss_options={"num_classes": "auto"}, steps=3).fit(rows, labels)
    assert per_class.n_iter_ == 3


def test_proxies_learn_a_hundred_times_faster_by_default():
    rows, labels = blobs()

    def curve(loss, **options):
        return kinfold.MetricLearner(loss=loss, steps=20, **options).fit(rows, labels).loss_curve_

    assert curve("proxy-nca") == curve("proxy-nca", loss_lr=0.05) != curve("proxy-nca", loss_lr=5e-4)
    assert curve("margin") == curve("margin", loss_lr=5e-4) != curve("margin", loss_lr=0.05)
