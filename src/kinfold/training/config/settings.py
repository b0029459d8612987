"""Everything that decides a run, as typed objects: one dataclass for each table of a TOML recipe."""

from dataclasses import dataclass, field
from typing import Any, Literal

from kinfold import registry
from kinfold.training.config.validation import validate_config


@dataclass(frozen=True)
class NamedConfig:
    """A registered name with its options: [loss], [miner] or [sampler].

    Args:
        name: The registered name.
        options: Every other key of the table.
    """

    name: str
    options: dict[str, Any] = field(default_factory=dict)


PASSED = "passed"  # data.name or model.backbone of a run whose dataset or backbone was passed in Python


@dataclass(frozen=True)
class DataConfig:
    """[data]: the dataset, and which of its classes train, validate and test.

    Args:
        name: A name of `kinfold.list("datasets")`; "passed" in a run whose dataset was passed to `kinfold.train`.
        root: The folder or file of the dataset.
        options: Options of the dataset's reader.
        validation: Share of the training classes to hold out for selection, as whole classes. None is 0.2 where
            selection needs it, else 0. A dataset that has a validation split keeps it.
        split_seed: Draws the validation classes, independently of the `seed` of the run.
        protocol: How classes are assigned to splits; see `kinfold.data.folds`. "given" keeps the splits of the dataset.
        fold: The fold of the protocol.
        test: "withheld" leaves the test items out of the run.
        pipeline: A name for `kinfold.data.create_pipeline`; "auto" is the one of the backbone.
        size: Width and height of the images that the network gets; those of the pipeline if left out. "auto" in a
            recipe is 128 on a CPU, and the pipeline's own on other devices.
        flip: Whether training images are flipped at random; None leaves it to the pipeline.
        background: The color under transparent pixels, a name or "#rrggbb". Whatever uses the run later takes the same.
        cache: Decode every image once and keep it in memory.
        short_side: Resize cached images to this short side, in pixels.
        errors: "skip" leaves unreadable images out of the run.
        workers: Processes that read images.
        drop: A CSV file of `kinfold data audit`: items that it marks with drop = yes are left out.
    """

    name: str = "glyphs"
    root: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    validation: float | None = None
    split_seed: int = 0
    protocol: Literal[
        "given", "classic", "reality-check", "query-gallery", "shift-0", "shift-1", "shift-2", "shift-3", "shift-4"
    ] = "given"
    fold: int = 0
    test: Literal["open", "withheld"] = "open"
    pipeline: str = "auto"
    size: int | None = None
    flip: bool | None = None
    background: str = "white"
    cache: bool = False
    short_side: int | None = None
    errors: Literal["raise", "skip"] = "raise"
    workers: int = 0
    drop: str | None = None


@dataclass(frozen=True)
class ModelConfig:
    """[model]: the network that maps an item to its embedding; see `kinfold.models.create`.

    Args:
        backbone: A name of `kinfold.list("backbones")`; "auto" chooses by the data. "passed" in a run whose backbone
            was passed to `kinfold.train`.
        dim: Width of the embedding.
        head: A name of `kinfold.list("heads")`.
        pool: How feature maps are pooled.
        init: The start of a head that takes no weights: random, or a linear map that is computed from the training
            features: principal components, whitening, whitening within classes, LDA. "auto" is half-whiten for a linear
            head on features and random otherwise.
        init_length: Root mean square length of the embeddings at a start that is not random. For losses on raw
            vectors it acts as a temperature; losses on unit vectors do not depend on it.
        init_shrinkage: Share of the covariance that a start with whitening or LDA replaces by a multiple of the
            identity. None is 0 for half-whiten and whiten, and 0.5 for within-whiten, lda and plda.
        standardize: Center the features and divide them by one number, so that learning rates do not depend on
            the unit of the features. The head "identity" ignores it.
        weights: "imagenet", a weight file for the backbone, or the folder of a run. From a run, backbone and head
            start from its weights, or the backbone alone where the head has another shape.
        batch_norm: "frozen-statistics" keeps the running statistics, "frozen" the parameters too.
        frozen_stages: First stages of the backbone that are not trained. With a negative number, all but so many of the
            last ones: -2 trains the last two stages and what follows them. 0 trains the whole backbone.
        memory_format: Order of images and convolution weights in memory. "auto" times both at the start of a run and
            keeps the faster one; networks with few weights stay contiguous.
        backbone_options: Options of the backbone.
        head_options: Options of the head.
    """

    backbone: str = "auto"
    dim: int = 128
    head: str = "linear"
    pool: Literal["avg", "max", "avg+max"] = "avg"
    init: Literal["auto", "random", "pca", "half-whiten", "whiten", "within-whiten", "lda", "plda"] = "auto"
    init_length: float = 1.0
    init_shrinkage: float | None = None
    standardize: bool = False
    weights: str | None = None
    batch_norm: Literal["train", "frozen-statistics", "frozen"] = "train"
    frozen_stages: int = 0
    memory_format: Literal["auto", "contiguous", "channels-last"] = "auto"
    backbone_options: dict[str, Any] = field(default_factory=dict)
    head_options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class MemoryConfig:
    """[memory]: cross-batch memory, loss(batch) + weight * loss(batch against memory).

    Args:
        size: Embeddings of earlier batches to keep.
        start: First step that uses the memory.
        weight: Weight of the second term.
    """

    size: int
    start: int = 0
    weight: float = 1.0


@dataclass(frozen=True)
class OptimizerConfig:
    """[optimizer]: the optimizer and its learning rates.

    Args:
        name: The optimizer of torch.
        lr: Learning rate of the backbone.
        head_lr: Learning rate of the head; `lr` where left out.
        loss_lr: Learning rate of the loss' own parameters, such as proxies; `lr` where left out.
        layer_decay: Factor on the learning rate from each stage of the backbone to the one before it, so that early
            layers learn slower; 1 gives all the same rate.
        proxy_factor: Where `loss_lr` is left out, proxies learn at this multiple of the head's rate.
        weight_decay: Of the network. It is never applied to parameters of the loss.
        momentum: For sgd and rmsprop.
        clip: Largest norm of the network's gradient.
    """

    name: Literal["adam", "adamw", "sgd", "rmsprop"] = "adam"
    lr: float = 1e-3
    head_lr: float | None = None
    loss_lr: float | None = None
    layer_decay: float = 1.0
    proxy_factor: float | None = None
    weight_decay: float = 0.0
    momentum: float = 0.9
    clip: float | None = None


@dataclass(frozen=True)
class ScheduleConfig:
    """[schedule]: the factor on every learning rate.

    Args:
        name: The schedule after the warm-up.
        warmup: Steps of a linear rise from zero.
        every: step: multiply by `factor` every so many steps.
        at: milestones: multiply by `factor` at each of these steps.
        factor: For step and milestones.
        floor: cosine and linear: the factor at the last step.
    """

    name: Literal["constant", "cosine", "linear", "step", "milestones"] = "constant"
    warmup: int = 0
    every: int = 1000
    at: list[int] = field(default_factory=list)
    factor: float = 0.1
    floor: float = 0.0


@dataclass(frozen=True)
class LoraConfig:
    """[lora]: low-rank adapters in the linear layers of the backbone, whose weights stay as they are (Hu et al., 2022).

    Args:
        rank: Rank of the two matrices of an adapter.
        alpha: The adapter is scaled by alpha / rank.
        dropout: Probability of dropout before an adapter.
        targets: Endings of the names of linear layers that get one, such as "q_proj"; empty takes queries and values of
            attention.
    """

    rank: int = 8
    alpha: float = 16.0
    dropout: float = 0.0
    targets: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class MixupConfig:
    """[mixup]: manifold mixup, which mixes hidden states of two items at a layer drawn for each batch.

    Args:
        alpha: The share is drawn from Beta(alpha, alpha).
        layers: Layers to draw from: "input", or a stage of the backbone.
    """

    alpha: float = 2.0
    layers: list[str] = field(default_factory=lambda: ["input"])


@dataclass(frozen=True)
class TrainingConfig:
    """[training]: how long, in which precision, and what is saved when.

    Args:
        steps: Training steps; 0 measures the start. Give either `steps` or `epochs`.
        epochs: Epochs of the sampler.
        nested_dims: Prefixes of the embedding that are trained together, ascending, so that it can be cut to each of
            them; see `kinfold.losses.Nested`. Empty trains the whole embedding alone.
        start_share: Share of the first weights in the weights that the run ends with, from 0 to 1: W = share W_start +
            (1 - share) W_trained (Wortsman et al., Robust fine-tuning of zero-shot models, CVPR 2022). It keeps what
            the start knew about classes that training has not seen.
        precision: Of the network. Losses compute in float32 at least.
        micro_batch: Items that pass the network at a time. The gradient is still that of the whole batch.
        compile_loss: Let the loss compile its tiles, see `kinfold.losses.compile`: faster steps for large batches after
            a first one that takes some seconds longer.
        shard_classes: Let each of several processes hold the class vectors of a part of the classes, with the state of
            their optimizer, instead of all of them; see `ProxyLoss.shard_classes`. One process holds all.
        head_only: First steps, in which the backbone is not trained.
        device: Where to train; "auto" is a GPU where there is one.
        log_every: Steps between two lines of the log.
        save_seconds: Seconds between two checkpoints.
        save_every: Steps between two checkpoints.
        tensorboard: Write TensorBoard files too.
        loggers: Further places to log to: "tensorboard", "wandb", "mlflow".
    """

    steps: int | None = None
    epochs: int | None = None
    nested_dims: list[int] = field(default_factory=list)
    start_share: float = 0.0
    precision: Literal["float32", "bfloat16", "float16", "float64"] = "float32"
    micro_batch: int | None = None
    compile_loss: bool = False
    shard_classes: bool = False
    head_only: int = 0
    device: str = "auto"
    log_every: int = 10
    save_seconds: float = 60.0
    save_every: int | None = None
    tensorboard: bool = False
    loggers: list[Literal["tensorboard", "wandb", "mlflow"]] = field(default_factory=list)


@dataclass(frozen=True)
class EvaluationConfig:
    """[evaluation]: when and how the model is evaluated, and which weights the run ends with.

    Args:
        every: Steps between two evaluations.
        metrics: Names of `kinfold.list("metrics")`.
        metric: The metric that selection and patience follow.
        selection: "validation" takes the best step on validation classes, "last" the last step. "test-oracle"
            takes the best step on the test classes, which inflates the scores.
        patience: Evaluations without a better value before training stops.
        patience_after: Share of the steps before which patience never stops a run; nor does it during warm-up.
        distance: "auto" is that of the loss: its option `distance` (cosine for snr), else Euclidean for losses on raw
            vectors and cosine for all others.
        diagnose: When `diagnostics` are computed on the training classes.
        diagnostics: Metrics of the training classes.
        batch_size: Items that are embedded at a time.
    """

    every: int = 200
    metrics: list[str] = field(default_factory=lambda: ["recall@1", "recall@2", "recall@4", "recall@8", "map@r"])
    metric: str = "map@r"
    selection: Literal["validation", "last", "test-oracle"] = "validation"
    patience: int | None = None
    patience_after: float = 0.5
    distance: Literal["auto", "cosine", "dot", "euclidean", "hyperbolic"] | dict[str, Any] = "auto"
    diagnose: Literal["never", "end", "always"] = "end"
    diagnostics: list[str] = field(default_factory=lambda: ["rho@1", "rho@2", "density", "intra", "inter"])
    batch_size: int = 256


@dataclass(frozen=True)
class RunConfig:
    """One run, checked when it is created.

    Args:
        seed: Seed of everything that is drawn.
        data, model, loss, miner, sampler, memory, lora, optimizer, schedule, mixup, training, evaluation: The tables.
        search: Values that a hyper-parameter search may try, such as
            "optimizer.lr" = {low = 1e-5, high = 1e-2, log = true} or "loss.k" = {values = [160, 200]}. A single run
            does not use it; see `kinfold.experiments.search`.

    Raises:
        ValueError: A value is out of its range, or would be ignored.
    """

    seed: int = 0
    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    loss: NamedConfig = field(default_factory=lambda: NamedConfig("multi-similarity"))
    miner: NamedConfig | None = None
    sampler: NamedConfig = field(default_factory=lambda: NamedConfig("spc", {"batch_size": 128, "per_class": 4}))
    memory: MemoryConfig | None = None
    lora: LoraConfig | None = None
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    mixup: MixupConfig | None = None
    training: TrainingConfig = field(default_factory=lambda: TrainingConfig(steps=1000))
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    search: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        for kind, named in (("losses", self.loss), ("miners", self.miner), ("samplers", self.sampler)):
            if named is not None and named.name not in registry.names(kind):
                registry.resolve(kind, named.name)  # raises with the nearest name
        validate_config(self)
