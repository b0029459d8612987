"""The fit itself: shape of batches, held-out classes, wrong input, interruption, absence of scikit-learn."""

import signal
import subprocess
import sys

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV

import kinfold
from kinfold import registry
from kinfold.data import Rows, create_dataset
from kinfold.losses import Loss
from kinfold.training import splits
from kinfold.training.batch_shape import fit_batch_shape
from kinfold.training.config.settings import DataConfig

from .problems import blobs


class Noted(Loss):
    """A loss that keeps how many items of each class there were in a step, and sends a signal in the second."""

    kind = "batch"
    shown: list[list[int]] = []  # noqa: RUF012
    sends = 0

    def forward(self, embeddings, labels, **options):  # type: ignore[override]
        if embeddings.grad_fn is not None:  # not while the loss is tried out
            Noted.shown.append(torch.bincount(labels).tolist())
            if Noted.sends and len(Noted.shown) == 2:
                signal.raise_signal(Noted.sends)
        return embeddings.square().mean()


@pytest.fixture
def noted(monkeypatch, own_names):
    registry.register("losses", "noted", f"{__name__}:Noted")
    monkeypatch.setattr(Noted, "shown", [])
    monkeypatch.setattr(Noted, "sends", 0)
    return Noted


@pytest.mark.parametrize(
    ("sizes", "asked", "expected"),
    [
        ([20] * 30, (80, 5), (80, 5)),  # as asked for
        ([20] * 30, (82, 5), (80, 5)),  # never larger
        ([20] * 4, (80, 5), (80, 20)),  # few classes fill the batch
        ([20] * 3, (80, 5), (60, 20)),  # as far as they have items
        ([50, 6], (80, 5), (12, 6)),  # the smallest decides
        ([50, 2], (80, 5), (10, 5)),  # but per_class is kept
        ([3] * 40, (80, 5), (78, 3)),  # no class has five
        ([1] * 9, (80, 5), (9, 1)),
    ],
)
def test_the_batch_shape_adapts_to_the_class_sizes(sizes, asked, expected, noted):
    assert fit_batch_shape(sizes, *asked) == expected
    labels = np.repeat(np.arange(len(sizes)), sizes)
    rows = np.random.default_rng(0).normal(size=(len(labels), 3))
    if max(sizes) > 1:
        kinfold.MetricLearner(loss="noted", steps=2, batch_size=asked[0], per_class=asked[1]).fit(rows, labels)
        assert len(noted.shown) == 2
        for counts in noted.shown:
            assert [count for count in counts if count] == [expected[1]] * (expected[0] // expected[1])


def test_the_best_step_on_held_out_classes_is_kept():
    # five digits, learned fast, only spoil the space for the other five
    rows, labels = load_digits(return_X_y=True)
    options = {"validation": 0.5, "steps": 40, "metric": "map@r"}
    learner = kinfold.MetricLearner(lr=3e-2, **options).fit(rows, labels)
    assert [*learner.scores_] == [*range(0, 41, 2)]
    best, last = max(learner.scores_.values()), learner.scores_[40]
    assert learner.scores_[learner.best_step_] == best > last + 0.1
    assert (learner.n_iter_, len(learner.classes_)) == (40, 10)
    # the model is the one of that step: on the classes that were held out it has that very value
    data = create_dataset("digits", Rows(rows), labels, ["train"] * len(labels))
    held = np.isin(
        labels, [int(name) for name in splits.split_classes(data, DataConfig(validation=0.5)).validation.classes]
    )
    assert learner.score(rows[held], labels[held]) == pytest.approx(best, abs=1e-3)


def test_held_out_classes_do_not_affect_training(noted):
    rows, labels = blobs(classes=8)
    kinfold.MetricLearner(loss="noted", validation=0.25, steps=4).fit(rows, labels)
    assert {len(counts) for counts in noted.shown} == {6}


def test_training_stops_when_patience_runs_out():
    rows, labels = blobs()
    learner = kinfold.MetricLearner(validation=0.4, patience=3, steps=200, lr=0.0).fit(rows, labels)
    assert (learner.n_iter_, learner.best_step_) == (100, 0)  # half of the steps are always done


def test_without_validation_all_steps_run_and_the_last_is_kept():
    rows, labels = blobs()
    learner = kinfold.MetricLearner(steps=7).fit(rows, labels)
    assert (learner.n_iter_, learner.best_step_, learner.scores_) == (7, 7, {})


def test_score_is_any_metric_and_more_is_better():
    rows, labels = blobs()
    learner = kinfold.MetricLearner(steps=3).fit(rows, labels)
    for name in ("recall@1", "map@r", "nmi", "eer"):
        value = kinfold.metrics.evaluate(learner.transform(rows), labels, metrics=[name])[name]
        assert learner.set_params(metric=name).score(rows, labels) == (-value if name == "eer" else value)
    with pytest.raises(ValueError, match="no class in y has two items"):
        learner.set_params(metric="recall@1").score(rows[:3], ["a", "b", "c"])


def test_verbose_prints_progress(capsys):
    rows, labels = blobs()
    kinfold.MetricLearner(steps=40, verbose=1, validation=0.4).fit(rows, labels)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("step 0 of 40: recall@1 ")
    assert len(lines) == 21 + 20
    kinfold.MetricLearner(steps=40).fit(rows, labels)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "margn"}, "did you mean 'margin'"),
        ({"miner": "hardest"}, "did you mean 'hard'"),
        ({"head": "lineer"}, "head must be one of 'linear', 'mlp'.*did you mean 'linear'"),
        ({"init": "half"}, "init must be one of"),
        ({"init": "pca", "head": "mlp"}, "a start for the linear head"),
        ({"dim": 0}, "dim must be at least 1, got 0"),
        ({"dim": None}, "dim must be an integer, got None"),
        ({"steps": 1.5}, "steps must be an integer of at least 1, got 1.5"),
        ({"batch_size": 8, "per_class": 5}, "cannot hold two classes of per_class=5; raise it to 10"),
        ({"lr": -1.0}, "^lr must be at least 0, got -1.0"),
        ({"lr": float("nan")}, "^lr must be a finite number, got nan"),
        ({"loss_lr": "fast"}, "loss_lr must be a number"),
        ({"validation": 1.0}, "validation must be in \\[0, 1\\), got 1"),
        ({"validation": 0.9}, "validation=0.9 of 6 training classes leaves 5 for validation and 1 for training"),
        ({"validation": 0.05}, "leaves 0 for validation and 6 for training"),
        ({"patience": 3}, "patience needs validation classes"),
        ({"metric": "recal@1"}, "recall@"),
        ({"distance": "manhattan"}, "distance must be one of"),
        ({"loss": "proxy-nca", "miner": "hard"}, "nothing to mine"),
        ({"miner": None, "miner_options": {"switch": 0.1}}, "miner_options are given without a miner"),
        ({"loss": "triplet", "miner_options": {"switch": 0.1}}, "has no default miner that takes it"),
        ({"loss": "triplet", "loss_lr": 0.1}, "^loss_lr=0.1 is for parameters of the loss, and this loss has none"),
        ({"random_state": -1}, "random_state must be an integer"),
        ({"loss": "n-pair", "lr": 1e30}, "not finite.*lower lr, which is 1e\\+30"),
    ],
)
def test_a_wrong_parameter_is_named_when_it_is_used(options, message):
    rows, labels = blobs()
    learner = kinfold.MetricLearner(**{"steps": 5, **options})
    with pytest.raises(ValueError, match=message):
        learner.fit(rows, labels)


def test_data_that_cannot_be_used_for_training_is_refused():
    rows, labels = blobs()
    learner = kinfold.MetricLearner(steps=2)
    with pytest.raises(ValueError, match="y has only one class"):
        learner.fit(rows, np.zeros(len(rows)))
    with pytest.raises(ValueError, match="Unknown label type: continuous"):
        learner.fit(rows, rows[:, 0])
    with pytest.raises(ValueError, match="all rows of X are equal"):
        learner.fit(np.ones_like(rows), labels)
    with pytest.raises(ValueError, match=r"every class has one item only.*'proxy-anchor'"):
        learner.fit(rows, np.arange(len(rows)))
    with pytest.raises(ValueError, match="no validation class has two items"):
        kinfold.MetricLearner(validation=0.3, steps=2).fit(rows, np.arange(len(rows)))
    with pytest.raises(ValueError, match="X has 9 features, but MetricLearner is expecting 10"):
        learner.fit(rows, labels).transform(rows[:, :9])


def test_proxies_learn_from_single_items():
    rows, _ = blobs()
    learner = kinfold.MetricLearner(loss="proxy-anchor", steps=3).fit(rows, np.arange(len(rows)))
    assert len(learner.classes_) == len(rows)


def test_an_interrupt_is_raised_and_is_not_a_failed_fit(interruptible, noted):
    rows, labels = blobs()
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    noted.sends = signal.SIGINT
    learner = kinfold.MetricLearner(loss="noted", steps=50)
    with pytest.raises(KeyboardInterrupt):
        # else the search would go on with the next fit
        GridSearchCV(learner, {"dim": [2, 3]}, cv=2, error_score=0.0).fit(rows, labels)
    assert len(noted.shown) == 2
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_without_scikit_learn_the_error_says_what_to_install():
    code = """
import sys
sys.modules["sklearn"] = None
import kinfold
try:
    kinfold.MetricLearner
except ImportError as problem:
    print(problem)
"""
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout.strip() == 'kinfold.MetricLearner needs scikit-learn: pip install "kinfold[learner]"'
