"""`MetricLearner`: a head on arrays, trained to bring items of one class together, as a scikit-learn estimator."""

from collections.abc import Mapping
from numbers import Integral
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from kinfold import metrics
from kinfold.learner import fitting
from kinfold.learner.settings import configuration, whole
from kinfold.pairs import normalize
from kinfold.training.loop import Event
from kinfold.training.selection import SMALLER_IS_BETTER

Array = np.ndarray[Any, Any]
_ROWS = 8192  # that pass the network at a time


class MetricLearner(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Learn a space in which rows of one class lie together, also rows of classes that were not there.

    Parameters
    ----------
    loss, loss_options: any name of `kinfold.list("losses")` and its options. Number of classes and width are filled in.
    miner, miner_options: a name of `kinfold.list("miners")` or None. "auto" is distance-weighted for margin and
        contrastive, multi-similarity for lifted, generalized-lifted, hap2s, nt-xent and supcon, and None for others.
    dim: width of the embedding, at most. A linear head gives no more than X has columns and, unless init="random",
        directions in which its rows vary.
    head: "linear", or "mlp" with one hidden layer as wide as X.
    init: where a linear head starts: at principal components, "pca", "half-whiten" or "whiten", or "random". "auto" is
        half-whiten for the linear head and random for the other.
    steps: training steps.
    batch_size, per_class: items in a batch, at most, and items of each class in it. per_class is lowered to what the
        largest class has. Where all classes together do not fill a batch, each gives more, as many as the smallest has.
        Items of smaller classes come several times.
    lr: of AdamW, for rows that are centred and have length one in the mean (they are made so, and the head is turned
        back in the end): multiplying X by a number changes nothing. "auto" is 5e-4, but 1e-4 for quadruplet and 2e-5
        for dro-max, which learn from draws or single pairs.
    loss_lr: of the parameters of the loss; None is 100 lr for class vectors and lr for others.
    weight_decay: of the head.
    validation: share of the CLASSES to hold out. The step that does best on them is kept, out of 20 looks. With 0, all
        classes are learned from and the last step is kept.
    patience: looks without a better one before training ends, once half of the steps are done; None never ends early.
    metric: what `score` and validation measure, a name of `kinfold.list("metrics")`.
    distance: "cosine", "dot" or "euclidean"; "auto" is Euclidean for losses on raw vectors and cosine for every other.
        With cosine, embeddings have length one, so that any neighbour search finds the same neighbours.
    random_state: 0 or another whole number makes fits repeatable; None draws one; a RandomState gives one.
    verbose: 1 prints loss and validation at every look.
    device: where training runs; "auto" is a GPU where there is one. The fitted model is on the CPU.

    Attributes
    ----------
    model_: the network, (n, n_features_in_) -> (n, dim), as a torch module, not normalised.
    classes_: the distinct labels. n_features_in_, feature_names_in_: as in all of scikit-learn.
    n_iter_: steps done. best_step_: the one that was kept. distance_: what "auto" stood for.
    loss_curve_: the loss of every step. scores_: by step, the metric on held-out classes.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> import kinfold
    >>> X, y = load_wine(return_X_y=True)
    >>> learner = kinfold.MetricLearner(loss="margin", dim=4, steps=50).fit(X[::2], y[::2])
    >>> learner.transform(X[1::2]).shape
    (89, 4)
    """

    model_: Any
    distance_: Any

    def __init__(
        self,
        loss: str = "margin",
        loss_options: Mapping[str, Any] | None = None,
        miner: str | None = "auto",
        miner_options: Mapping[str, Any] | None = None,
        dim: int = 128,
        head: str = "linear",
        init: str = "auto",
        steps: int = 300,
        batch_size: int = 80,
        per_class: int = 5,
        lr: float | str = "auto",
        loss_lr: float | None = None,
        weight_decay: float = 0.0,
        validation: float = 0.0,
        patience: int | None = None,
        metric: str = "recall@1",
        distance: str = "auto",
        random_state: int | np.random.RandomState | None = 0,
        verbose: int = 0,
        device: str = "auto",
    ) -> None:
        self.loss = loss
        self.loss_options = loss_options
        self.miner = miner
        self.miner_options = miner_options
        self.dim = dim
        self.head = head
        self.init = init
        self.steps = steps
        self.batch_size = batch_size
        self.per_class = per_class
        self.lr = lr
        self.loss_lr = loss_lr
        self.weight_decay = weight_decay
        self.validation = validation
        self.patience = patience
        self.metric = metric
        self.distance = distance
        self.random_state = random_state
        self.verbose = verbose
        self.device = device

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803
        """Learn from rows X (n, d) and a class for each, words or whole numbers."""
        X, y = validate_data(self, X, y, dtype=np.float32, ensure_min_samples=2)  # noqa: N806
        if y.dtype.kind not in "iubUS":
            # whole numbers and words are labels, however few items each has; the check would take them for a regression
            check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"MetricLearner tells classes apart, and y has only one class: {str(self.classes_[0])!r}")
        given = configuration(self.get_params(deep=False), _seed(self.random_state), len(self.classes_))
        printed = [_Printed(given.evaluation.every)] if self.verbose else []
        fitted = fitting.fit(X, labels, given, printed, own_loss_lr=self.loss_lr is not None)
        self.model_ = fitted.model
        self.distance_ = fitted.distance
        self.n_iter_ = fitted.steps
        self.best_step_ = fitted.best_step
        self.loss_curve_ = fitted.history.losses
        self.scores_ = fitted.history.scores
        return self

    def transform(self, X: Any) -> Array:  # noqa: N803
        """Embeddings of the rows of X, float32 (n, dim); of length one where they are compared by cosine."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float32, reset=False)  # noqa: N806
        rows = torch.from_numpy(np.require(X, requirements=["C", "W"]))  # torch takes no read-only memory
        with torch.inference_mode():
            found = torch.cat([self.model_(block) for block in torch.split(rows, _ROWS)])
            embeddings: Array = (normalize(found) if self.distance_ == "cosine" else found).numpy()
        return embeddings

    def score(self, X: Any, y: Any) -> float:  # noqa: N803
        """`metric` of the embeddings of X: every row looks for others of its class, which need not be those of `fit`.

        More is better: of a metric such as eer, where less is, the negative is given.
        """
        check_is_fitted(self)
        X, y = validate_data(self, X, y, dtype=np.float32, reset=False)  # noqa: N806
        _, labels = np.unique(y, return_inverse=True)
        value = metrics.evaluate(self.transform(X), labels, metrics=[self.metric], distance=self.distance_)[self.metric]
        if value != value:
            raise ValueError(f"{self.metric} is not defined: no class in y has two items that could find each other")
        return -value if self.metric.startswith(SMALLER_IS_BETTER) else value

    @property
    def _n_features_out(self) -> int:
        return int(self.model_.dim)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags


class _Printed:
    """Loss and validation on the screen, at every look."""

    def __init__(self, every: int) -> None:
        self.every = every

    def __call__(self, event: Event) -> None:
        if event.kind == "evaluation" or (event.kind == "step" and event.step % self.every == 0):
            shown = {name: value for name, value in event.values.items() if not name.startswith("lr-")}
            words = ", ".join(f"{name} {value:.4f}" for name, value in shown.items())
            print(f"step {event.step} of {event.steps}: {words}")


def _seed(random_state: Any) -> int:
    if random_state is None:
        # not from numpy's global generator, as others do: nothing here touches it
        return int(np.random.default_rng().integers(2**31))
    if isinstance(random_state, Integral):
        return whole("random_state", random_state, 0)
    return int(check_random_state(random_state).randint(2**31 - 1))
