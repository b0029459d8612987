"""`MetricLearner`: a metric learning head on arrays as a scikit-learn estimator."""

import re
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from numbers import Integral
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from kinfold import metrics, models, registry
from kinfold.data import Dataset, Rows, create_dataset
from kinfold.distributed import World
from kinfold.models import Embedder
from kinfold.models.initialization import PrincipalComponents, compute_principal_components
from kinfold.models.linear_maps import SUPERVISED
from kinfold.models.precomputed import PrecomputedFeatures
from kinfold.optional import import_optional
from kinfold.pairs import normalize
from kinfold.training.batch_shape import fit_batch_shape
from kinfold.training.builder import RunBuilder
from kinfold.training.config import NamedConfig, RunConfig, configure
from kinfold.training.config.defaults import PROXY_FACTOR
from kinfold.training.loop import Event, Stopped, Trainer
from kinfold.training.loop.selection import SMALLER_IS_BETTER
from kinfold.training.loop.trainer import is_finite
from kinfold.training.splits import split_classes

try:
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError:
    import_optional("sklearn", "scikit-learn", "learner", "kinfold.MetricLearner")  # raises with what to install
    raise

__all__ = ["MetricLearner"]

Array = np.ndarray[Any, Any]
_HEADS = ("linear", "mlp")
_EVALUATIONS = 20  # on validation classes during a fit
_CHUNK = 8192  # rows that pass the network at a time
_SETTING = re.compile(r"\b(?:data|model|sampler|optimizer|training|evaluation)\.(?=[a-z_]+)")


class MetricLearner(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Learn an embedding in which rows of one class lie close together, also rows of classes that were not in `fit`.

    Args:
        loss: A name of `kinfold.list("losses")`.
        loss_options: Its options. Number of classes and width are filled in.
        miner: A name of `kinfold.list("miners")` or None. "auto" is distance-weighted for margin and contrastive,
            multi-similarity for lifted, generalized-lifted, hap2s, nt-xent and supcon, and None for others.
        miner_options: Its options.
        dim: Width of the embedding, at most. A linear head gives no more dimensions than X has columns and, unless
            init="random", than its rows vary in.
        head: "linear", or "mlp" with one hidden layer as wide as X.
        init: Where a linear head starts: at principal components, "pca", "half-whiten" or "whiten", at "within-whiten",
            "lda" or "plda", which use the classes, or "random". "auto" is half-whiten for the linear head and random
            for the other.
        steps: Training steps.
        batch_size: Items in a batch, at most.
        per_class: Items of each class in a batch; lowered to the size of the largest class. Where all classes
            together do not fill a batch, each gives more, up to the size of the smallest. Items of smaller classes are
            repeated.
        lr: Learning rate of AdamW, for rows that are centered and scaled to a mean length of one (this is done
            internally), so that multiplying X by a number changes nothing. "auto" is 5e-4, but 1e-4 for quadruplet and
            2e-5 for dro-max, which learn from draws or single pairs.
        loss_lr: Learning rate of the loss' own parameters. None is 100 lr for proxies and lr for others.
        weight_decay: Of the head.
        validation: Share of the classes to hold out. The best step on them, of 20 evaluations, is kept. With 0, all
            classes are trained on, and the last step is kept.
        patience: Evaluations without a better value before training stops, once half of the steps are done. None never
            stops early.
        metric: What `score` and validation measure, a name of `kinfold.list("metrics")`.
        distance: "cosine", "dot", "euclidean" or "hyperbolic"; "auto" is Euclidean for losses on raw vectors and cosine
            for all others. With cosine, embeddings have length one, so that any search finds the same neighbors.
        random_state: An integer makes fits repeatable; None draws one; a RandomState gives one.
        verbose: 1 prints loss and validation score at every evaluation.
        device: Where training runs; "auto" is a GPU where there is one. The fitted model is on the CPU.

    Attributes:
        model_: The network, (n, n_features_in_) -> (n, dim), as a torch module, without normalization.
        classes_: The distinct labels.
        n_features_in_: Columns of X.
        feature_names_in_: Their names, where X has any.
        n_iter_: Steps that were trained.
        best_step_: The step that was kept.
        distance_: What "auto" stood for.
        loss_curve_: The loss of every step.
        scores_: The metric on validation classes, by step.

    Examples:
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
        """Learn an embedding.

        Args:
            X: Rows, (n, d).
            y: The class of each row, strings or integers.

        Returns:
            The estimator itself.

        Raises:
            ValueError: A parameter is wrong, or the data cannot be learned from.
        """
        X, y = validate_data(self, X, y, dtype=np.float32, ensure_min_samples=2)  # noqa: N806
        if y.dtype.kind not in "iubUS":
            # integers and strings are labels, however few items each has; the check would take them for a regression
            check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"MetricLearner separates classes, and y has only one class: {str(self.classes_[0])!r}")
        if (X[0] == X).all():
            raise ValueError("all rows of X are equal: no embedding can separate classes")
        with _name_parameters():
            config = self._build_config()
            builder = _build_run(config, create_dataset("X", Rows(X), labels, np.full(len(labels), "train")))
            trainer = builder.build_trainer(None, [self._record])
        self.loss_curve_: list[float] = []
        self.scores_: dict[int, float] = {}
        _train(trainer)
        self.model_ = _extract_model(builder, trainer)
        self.distance_ = builder.config.evaluation.distance
        self.n_iter_ = trainer.step_number
        self.best_step_ = trainer.step_number if trainer.selection.best is None else trainer.selection.best_step
        return self

    def transform(self, X: Any) -> Array:  # noqa: N803
        """Embed rows.

        Args:
            X: Rows, (n, d).

        Returns:
            float32 embeddings, (n, dim), of length one where they are compared by cosine.
        """
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float32, reset=False)  # noqa: N806
        with torch.inference_mode():
            embeddings = torch.cat([self.model_(chunk) for chunk in torch.split(_to_tensor(X), _CHUNK)])
            rows: Array = (normalize(embeddings) if self.distance_ == "cosine" else embeddings).numpy()
        return rows

    def score(self, X: Any, y: Any) -> float:  # noqa: N803
        """Return `metric` of the embeddings of X, in which every row searches for others of its class.

        Higher is better: a metric of which smaller values are better, such as eer, is negated.

        Args:
            X: Rows, (n, d).
            y: The class of each row; they need not be the classes of `fit`.

        Raises:
            ValueError: No class has two items.
        """
        check_is_fitted(self)
        X, y = validate_data(self, X, y, dtype=np.float32, reset=False)  # noqa: N806
        _, labels = np.unique(y, return_inverse=True)
        value = metrics.evaluate(self.transform(X), labels, metrics=[self.metric], distance=self.distance_)[self.metric]
        if value != value:
            raise ValueError(f"{self.metric} is not defined: no class in y has two items that could find each other")
        return -value if self.metric.startswith(SMALLER_IS_BETTER) else value

    def _build_config(self) -> RunConfig:
        """Return the parameters as the configuration of a run, which checks them."""
        for name, value in (("steps", self.steps), ("batch_size", self.batch_size), ("per_class", self.per_class)):
            _check_integer(name, value, 1)
        if self.batch_size < 2 * self.per_class:
            raise ValueError(
                f"batch_size={self.batch_size} cannot hold two classes of per_class={self.per_class}; raise it to "
                f"{2 * self.per_class}"
            )
        registry.check_choice("head", self.head, _HEADS)
        if self.init not in ("auto", "random") and self.head != "linear":
            raise ValueError(
                f"init={self.init!r} is a start for the linear head; use init='auto' or 'random' with "
                f"head={self.head!r}"
            )
        if self.miner is None and self.miner_options:
            raise ValueError("miner_options are given without a miner: name one, or leave them out")
        if self.patience is not None and not self.validation:
            raise ValueError("patience needs validation classes: set validation, the share of the classes to hold out")
        seed = _choose_seed(self.random_state)
        optimizer = {"name": "adamw", "lr": self.lr, "loss_lr": self.loss_lr, "weight_decay": self.weight_decay}
        tables = {
            "seed": seed,
            "data": {"name": "X", "validation": self.validation, "split_seed": seed},
            "model": {"backbone": "features", "dim": self.dim, "head": self.head, "init": self.init}
            | {"init_length": "auto", "standardize": True},
            "loss": {"name": self.loss, **(self.loss_options or {})},
            "miner": {"name": self.miner or "none", **(self.miner_options or {})},
            "sampler": {"name": "spc", "batch_size": int(self.batch_size), "per_class": int(self.per_class)},
            "optimizer": {**optimizer, "proxy_factor": PROXY_FACTOR},
            "training": {"steps": self.steps, "device": self.device},
            "evaluation": {
                "every": max(1, int(self.steps) // _EVALUATIONS),
                "metrics": [self.metric],
                "metric": self.metric,
                "selection": "validation" if self.validation else "last",
                "patience": self.patience,
                "distance": self.distance,
                "diagnose": "never",
                "batch_size": 4096,
            },
        }
        for table, key in (("optimizer", "loss_lr"), ("evaluation", "patience")):
            if tables[table][key] is None:  # type: ignore[index]  # both are tables
                del tables[table][key]  # type: ignore[attr-defined]
        return configure(tables)

    def _record(self, event: Event) -> None:
        """Record loss and validation score of an event, and print them where `verbose` asks for it."""
        if event.kind == "step":
            self.loss_curve_.append(event.values["loss"])
        elif event.kind == "evaluation":
            self.scores_[event.step] = event.values[self.metric]
        every = max(1, int(self.steps) // _EVALUATIONS)
        if self.verbose and (event.kind == "evaluation" or (event.kind == "step" and event.step % every == 0)):
            values = [f"{name} {value:.4f}" for name, value in event.values.items() if not name.startswith("lr-")]
            print(f"step {event.step} of {event.steps}: {', '.join(values)}")

    @property
    def _n_features_out(self) -> int:
        return int(self.model_.dim)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags


def _build_run(config: RunConfig, dataset: Dataset) -> RunBuilder:
    """Fit width, start and batch shape to the training rows, and build the run."""
    train = split_classes(dataset, config.data).train
    model, init = config.model, config.model.init
    if init == "auto":
        init = "half-whiten" if model.head == "linear" else "random"
    start: Tensor | PrincipalComponents | None = None
    if init != "random":
        rows = _to_tensor(train.items.array())  # type: ignore[attr-defined]  # `Rows`
        start = PrecomputedFeatures(rows.shape[1], standardize=True).standardize(rows)
        limit = min(rows.shape[1], len(train.classes) - 1) if init == "lda" else rows.shape[1]
        if init not in SUPERVISED:
            start = compute_principal_components(start)
            limit = start.rank
        model = replace(model, dim=min(model.dim, max(1, limit)))
    batch_size, per_class = fit_batch_shape(train.class_sizes().tolist(), **config.sampler.options)
    sampler = NamedConfig("spc", {"batch_size": batch_size, "per_class": per_class})
    config = replace(config, model=replace(model, init="random"), sampler=sampler)
    builder = RunBuilder(config, dataset, World.current())
    if start is not None:
        how: Any = init  # not "auto" or "random"
        models.initialize(builder.model.head, start, how, model.init_length, labels=train.labels)
    return builder


def _train(trainer: Trainer) -> None:
    try:
        trainer.fit()
    except Stopped as stopped:
        # nothing was saved, so the signal does what it does to any other fit
        signal.raise_signal(stopped.signal)
        raise


def _extract_model(builder: RunBuilder, trainer: Trainer) -> Embedder:
    """Return the selected network on the CPU, for rows without standardization."""
    weights, lr = trainer.get_selected_weights(), builder.config.optimizer.lr
    if trainer.diverged is not None:
        raise ValueError(f"the loss was not finite at step {trainer.diverged}; lower lr, which is {lr:g}")
    if not is_finite(weights):
        raise ValueError(f"the weights were not finite in the end; lower lr, which is {lr:g}")
    model = builder.model
    model.load_state_dict(weights)
    assert isinstance(model.backbone, PrecomputedFeatures)
    model.backbone.fold_into(model.head)
    return model.cpu().eval()


@contextmanager
def _name_parameters() -> Iterator[None]:
    """Replace the settings of a run in error messages by the parameters of the estimator: optimizer.lr -> lr."""
    try:
        yield
    except ValueError as error:
        raise ValueError(_SETTING.sub("", str(error))) from error


def _choose_seed(random_state: Any) -> int:
    if random_state is None:
        # not from numpy's global generator, which nothing here touches
        return int(np.random.default_rng().integers(2**31))
    if isinstance(random_state, Integral):
        _check_integer("random_state", random_state, 0)
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))


def _check_integer(name: str, value: Any, low: int) -> None:
    if not isinstance(value, Integral) or isinstance(value, bool) or value < low:
        raise ValueError(f"{name} must be an integer of at least {low}, got {value!r}")


def _to_tensor(rows: Array) -> Tensor:
    return torch.from_numpy(np.require(rows, requirements=["C", "W"]))  # torch takes no read-only memory
