"""Everything that decides a run, as typed objects: what a TOML recipe is read into and what is saved with the run."""

import math
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Literal

from kinfold import registry
from kinfold.data.image_reading import parse_background

MOST_WORKERS = 1024  # processes that read; a machine that starts more of them stands still
MOST_SEEDS = 1 << 63
WIDEST = 1 << 20  # numbers of an embedding; far more than any memory holds a network for


@dataclass(frozen=True)
class NamedConfig:
    """Something by its registered name, with options of its own: every other key of its table."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class DataConfig:
    """What is learned from.

    validation: the share of the training classes that is held out, whole classes, to select on: a fifth where selection
    asks for it and nothing else is said. A data set with a validation split of its own keeps that. `split_seed` draws
    the classes, the same for every `seed` of a run.
    protocol: which classes train, validate and test; see kinfold.data.folds. "given" keeps the splits of the data set.
    fold: which of the protocol's folds. test: "withheld" leaves the test items out of the run altogether, for whoever
    opens them after the last decision is made.
    pipeline: a name for kinfold.data.create_pipeline; "auto" takes the backbone's. cache: decode once, keep in memory.
    background: the color that transparent pixels are drawn on, a name or "#rrggbb"; whatever uses the run later draws
    them on the same.
    """

    name: str = "glyphs"
    root: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    validation: float | None = None
    split_seed: int = 0
    protocol: Literal["given", "classic", "reality-check", "query-gallery"] = "given"
    fold: int = 0
    test: Literal["open", "withheld"] = "open"
    pipeline: str = "auto"
    background: str = "white"
    cache: bool = False
    short_side: int | None = None
    errors: Literal["raise", "skip"] = "raise"
    workers: int = 0


@dataclass(frozen=True)
class ModelConfig:
    """What maps an item to its embedding; see kinfold.models.create. "auto" chooses by the data.

    weights: "imagenet", a file of weights for the backbone, or the folder of a run: backbone and head start from its
    weights, or the backbone alone where the head has another shape. init: how a head begins that takes no weights.
    init_length: how long embeddings are at a start from principal components, as a root mean square. To losses on raw
    vectors it is what a temperature is to others; losses on unit vectors do not depend on it.
    standardize: rows of features are centered and divided by one number, so that learning rates mean the same for
    features of any unit; see kinfold.models.precomputed. The head "identity" takes rows as they are all the same.
    """

    backbone: str = "auto"
    dim: int = 128
    head: str = "linear"
    pool: Literal["avg", "max", "avg+max"] = "avg"
    init: Literal["auto", "random", "pca", "half-whiten", "whiten"] = "auto"
    init_length: float = 1.0
    standardize: bool = False
    weights: str | None = None
    batch_norm: Literal["train", "frozen-statistics", "frozen"] = "train"
    backbone_options: dict[str, Any] = field(default_factory=dict)
    head_options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class MemoryConfig:
    """Embeddings of earlier batches as a second set to compare with: loss(batch) + weight x loss(batch, memory)."""

    size: int
    start: int = 0
    weight: float = 1.0


@dataclass(frozen=True)
class OptimizerConfig:
    """lr: the backbone's learning rate; head_lr: that of the head, loss_lr: that of proxies and boundaries (lr where
    left out). proxy_factor: where a loss has class vectors and loss_lr is left out, they learn at this multiple of the
    head's rate: they start anywhere and have far to go. Weight decay never touches the loss' parameters. clip: largest
    norm of the network's gradient."""

    name: Literal["adam", "adamw", "sgd", "rmsprop"] = "adam"
    lr: float = 1e-3
    head_lr: float | None = None
    loss_lr: float | None = None
    proxy_factor: float | None = None
    weight_decay: float = 0.0
    momentum: float = 0.9
    clip: float | None = None


@dataclass(frozen=True)
class ScheduleConfig:
    """The factor on every learning rate: a linear rise over `warmup` steps, then `name` over the rest.

    step: times `factor` every `every` steps; milestones: times `factor` at each of `at`; cosine and linear: down to
    `floor` at the last step.
    """

    name: Literal["constant", "cosine", "linear", "step", "milestones"] = "constant"
    warmup: int = 0
    every: int = 1000
    at: list[int] = field(default_factory=list)
    factor: float = 0.1
    floor: float = 0.0


@dataclass(frozen=True)
class MixupConfig:
    """Manifold mixup: hidden states of two items are mixed at a layer drawn for each batch ("input", or a stage of the
    backbone by its name), the share drawn from Beta(alpha, alpha)."""

    alpha: float = 2.0
    layers: list[str] = field(default_factory=lambda: ["input"])


@dataclass(frozen=True)
class TrainingConfig:
    """How long and how. Give `steps` or `epochs` (of the sampler); 0 steps measure the space as it is at the start.

    precision: of the network; losses always compute in float32 at least. micro_batch: items that pass the network at a
    time; the gradient is still that of the whole batch. head_only: first steps in which the backbone rests.
    """

    steps: int | None = None
    epochs: int | None = None
    precision: Literal["float32", "bfloat16", "float16", "float64"] = "float32"
    micro_batch: int | None = None
    head_only: int = 0
    device: str = "auto"
    log_every: int = 10
    save_seconds: float = 60.0
    save_every: int | None = None
    tensorboard: bool = False


@dataclass(frozen=True)
class EvaluationConfig:
    """When and how the space is measured, and which weights the run ends with.

    every: steps between evaluations of the selection data. metric: what selection and patience look at. patience:
    evaluations without a better value before training stops; it never stops before the warm-up of the schedule is over
    and the share `patience_after` of the steps is done. diagnose: when metrics of `diagnostics` are taken on the
    training classes. distance "auto": Euclidean for losses on raw vectors, else cosine.
    """

    every: int = 200
    metrics: list[str] = field(default_factory=lambda: ["recall@1", "recall@2", "recall@4", "recall@8", "map@r"])
    metric: str = "map@r"
    selection: Literal["validation", "last", "test-oracle"] = "validation"
    patience: int | None = None
    patience_after: float = 0.5
    distance: Literal["auto", "cosine", "dot", "euclidean"] = "auto"
    diagnose: Literal["never", "end", "always"] = "end"
    diagnostics: list[str] = field(default_factory=lambda: ["rho@1", "rho@2", "density", "intra", "inter"])
    batch_size: int = 256


@dataclass(frozen=True)
class RunConfig:
    """One run.

    search: which values a search may try, as in "optimizer.lr" = {low = 1e-5, high = 1e-2, log = true} or
    "loss.k" = {values = [160, 200]}; a run itself takes no notice of it. See kinfold.experiments.search.
    """

    seed: int = 0
    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    loss: NamedConfig = field(default_factory=lambda: NamedConfig("multi-similarity"))
    miner: NamedConfig | None = None
    sampler: NamedConfig = field(default_factory=lambda: NamedConfig("spc", {"batch_size": 128, "per_class": 4}))
    memory: MemoryConfig | None = None
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    mixup: MixupConfig | None = None
    training: TrainingConfig = field(default_factory=lambda: TrainingConfig(steps=1000))
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    search: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        for kind, choice in (("losses", self.loss), ("miners", self.miner), ("samplers", self.sampler)):
            if choice is not None and choice.name not in registry.names(kind):
                registry.resolve(kind, choice.name)  # raises with the nearest name
        _check(self)


def _check_numbers(value: Any, where: str = "") -> None:
    """ValueError for a number that is not finite, with its name. Options of a loss, a miner or a sampler may be
    infinite where they allow it, but no setting is NaN."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{where} must be a finite number, got {value}")
    if isinstance(value, NamedConfig):
        _check_defined(value.options, where)
    elif is_dataclass(value):
        for entry in fields(value):
            _check_numbers(getattr(value, entry.name), f"{where}.{entry.name}" if where else entry.name)
    else:
        _check_defined(value, where)


def _check_defined(value: Any, where: str) -> None:
    if isinstance(value, float) and math.isnan(value):
        raise ValueError(f"{where} is NaN; give a number")
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else ()
    for key, inner in entries:
        _check_defined(inner, f"{where}.{key}")


def _check_ranges(given: RunConfig) -> None:
    training, memory, mixup = given.training, given.memory, given.mixup
    at_least = {
        "data.split_seed": (given.data.split_seed, 0),
        "data.fold": (given.data.fold, 0),
        "data.workers": (given.data.workers, 0),
        "data.short_side": (given.data.short_side, 1),
        "training.head_only": (training.head_only, 0),
        "training.save_seconds": (training.save_seconds, 0),
        "schedule.warmup": (given.schedule.warmup, 0),
        "schedule.factor": (given.schedule.factor, 0),
        "schedule.floor": (given.schedule.floor, 0),
        "optimizer.weight_decay": (given.optimizer.weight_decay, 0),
        "optimizer.momentum": (given.optimizer.momentum, 0),
        "memory.start": (None if memory is None else memory.start, 0),
        "memory.weight": (None if memory is None else memory.weight, 0),
        **{f"schedule.at.{place}": (step, 0) for place, step in enumerate(given.schedule.at)},
    }
    for name, (value, least) in at_least.items():
        if value is not None and value < least:
            raise ValueError(f"{name} must be {least} or more, got {value}")
    for name, value, most in (
        ("data.workers", given.data.workers, MOST_WORKERS),
        ("model.dim", given.model.dim, WIDEST),
    ):
        if value > most:
            raise ValueError(f"{name} must be at most {most:,}, got {value:,}")
    if not 0 <= given.seed < MOST_SEEDS:
        raise ValueError(f"seed must be from 0 to 2**63 - 1, got {given.seed}")
    if given.optimizer.momentum >= 1:
        raise ValueError(f"optimizer.momentum must be below 1, got {given.optimizer.momentum}")
    if given.optimizer.clip is not None and given.optimizer.clip <= 0:
        raise ValueError(f"optimizer.clip must be positive, got {given.optimizer.clip}")
    if mixup is not None and mixup.alpha <= 0:
        raise ValueError(f"mixup.alpha must be positive, got {mixup.alpha}")


def _check(given: RunConfig) -> None:
    """What no single value shows to be wrong."""
    _check_numbers(given)
    _check_ranges(given)
    training, evaluation = given.training, given.evaluation
    if (training.steps is None) == (training.epochs is None):
        raise ValueError("[training] needs steps or epochs, and not both")
    positive = {
        "training.epochs": training.epochs,
        "training.micro_batch": training.micro_batch,
        "training.log_every": training.log_every,
        "training.save_every": training.save_every,
        "evaluation.every": evaluation.every,
        "evaluation.patience": evaluation.patience,
        "evaluation.batch_size": evaluation.batch_size,
        "model.dim": given.model.dim,
        "schedule.every": given.schedule.every,
        "memory.size": None if given.memory is None else given.memory.size,
    }
    for name, value in positive.items():
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    if training.steps is not None and training.steps < 0:
        raise ValueError(f"training.steps must be 0 or more, got {training.steps}")
    rates = {"lr": given.optimizer.lr, "head_lr": given.optimizer.head_lr, "loss_lr": given.optimizer.loss_lr}
    rates["proxy_factor"] = given.optimizer.proxy_factor
    for name, rate in rates.items():
        if rate is not None and not 0 <= rate < float("inf"):
            raise ValueError(f"optimizer.{name} must be a number from 0 up, got {rate}")
    if not 0 < given.model.init_length < float("inf"):
        raise ValueError(f"model.init_length must be a positive number, got {given.model.init_length}")
    if given.data.validation is not None and not 0 <= given.data.validation < 1:
        raise ValueError(f"data.validation is a share of the classes in [0, 1), got {given.data.validation}")
    try:
        parse_background(given.data.background)
    except ValueError as wrong:
        raise ValueError(f"data.background: {wrong}") from None
    if not 0 <= evaluation.patience_after <= 1:
        raise ValueError(
            "evaluation.patience_after is the share of the steps before which patience does not end a run, in [0, 1]; "
            f"got {evaluation.patience_after:g}"
        )
    if given.mixup is not None and training.micro_batch is not None:
        raise ValueError(
            "mixup mixes items of the whole batch, micro_batch shows the network a part of it: leave one out"
        )
    _check_schedule(given.schedule)
    optimizer = given.optimizer
    if optimizer.name in ("adam", "adamw") and optimizer.momentum != OptimizerConfig.momentum:
        raise ValueError(
            f"optimizer.momentum={optimizer.momentum:g} belongs to sgd and rmsprop, and {optimizer.name} would ignore "
            "it; leave it out"
        )
    if evaluation.selection != "last" and evaluation.metric not in evaluation.metrics:
        raise ValueError(
            f"evaluation.metric {evaluation.metric!r} selects, but is not among evaluation.metrics "
            f"({', '.join(evaluation.metrics)}); add it there"
        )


# settings of a schedule, and the names that use them
_USED_BY = {"every": ("step",), "at": ("milestones",), "factor": ("step", "milestones"), "floor": ("cosine", "linear")}


def _check_schedule(schedule: ScheduleConfig) -> None:
    usual = ScheduleConfig()
    for setting, names in _USED_BY.items():
        value = getattr(schedule, setting)
        if schedule.name not in names and value != getattr(usual, setting):
            raise ValueError(
                f"schedule.{setting}={value!r} belongs to {' and '.join(names)}, and {schedule.name} would ignore it; "
                "leave it out"
            )
