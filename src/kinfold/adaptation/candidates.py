"""Candidates of the ladder: spaces that can be fitted to rows of features, each as the tables of a run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from kinfold.models.linear_maps import LinearMapKind

AS_GIVEN = "as given"
# Steps of the ladder after the input, in their order, and whether a loss is trained
STEPS = {
    "centering and dimension": False,
    "whitening": False,
    "LDA": False,
    "linear head": True,
    "residual head": True,
}
IMAGE_STEPS = {**STEPS, "fine-tuning": True}  # of images; a residual head is left to features
del IMAGE_STEPS["residual head"]
_DIMS = (1024, 512, 256, 128, 64, 32)
_WHITENING_SHRINKAGE = (0.0, 0.1, 0.3, 0.6)
_WITHIN_SHRINKAGE = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
_LDA_SHRINKAGE = (0.1, 0.3, 0.5, 0.7, 0.9)
_WIDE = 1024  # columns; from here on lda is tried with every second shrinkage, since each takes an eigendecomposition
# What the race of heads tries, each with its rank: a race of n has the n candidates with the smallest sums. Learning
# rates are Adam's for standardized features. With 512 outputs a head of 1,280 columns trains in half the time, and
# scored as well on held-out training classes of CUB.
_LOSSES = {"margin": 0.0, "multi-similarity": 1.0, "proxy-anchor": 2.0, "supcon": 4.0, "dro-topk": 5.0}
_RATES = {5e-4: 0.0, 1e-4: 2.5, 2e-3: 4.5}
_BATCHES = {80: 0.0, 160: 3.5}
_SECOND_START = 0.5
_MAX_HEAD_DIM = 512
_TUNED_STAGES = 2
_TUNING_RATES = (1e-4, 2e-5)
_LORA_RATE, _LORA_RANK = 5e-4, 8  # adapters start at zero and take larger steps than weights
_SETTINGS = [
    (loss, rate, batch, (ranks[0], ranks[1], ranks[2]))
    for (loss, rate, batch), ranks in zip(
        product(_LOSSES, _RATES, _BATCHES),
        product(_LOSSES.values(), _RATES.values(), _BATCHES.values()),
        strict=True,
    )
]
PER_CLASS = 5
# Shares of the first weights in a trained head. On held-out training classes of CUB and of the flowers, start and head
# side by side scored up to 1 and 5 points of map@r above the head alone, where the head had forgotten the start.
START_SHARES = (0.0, 0.3, 0.6)


@dataclass(frozen=True)
class LinearCandidate:
    """A linear map in closed form.

    Attributes:
        kind: The kind of map; None for the input space itself.
        dim: Dimensions; None for all.
        shrinkage: Of its covariance.
    """

    kind: LinearMapKind | None
    dim: int | None = None
    shrinkage: float | None = None

    @property
    def name(self) -> str:
        """A short description, unique among the candidates of a step."""
        if self.kind is None:
            return AS_GIVEN
        title = "centered" if self.kind == "pca" and self.dim is None else self.kind
        parts = [] if self.dim is None else [f"{self.dim} dimensions"]
        parts += [f"shrinkage {self.shrinkage:g}"] if self.shrinkage else []
        return ", ".join([title, *parts])

    def model_table(self, width: int, classes: int) -> dict[str, Any]:
        """Return the table [model] of a run that starts from this map."""
        if self.kind is None:
            return {"backbone": "features", "head": "identity", "dim": width}
        limit = min(width, classes - 1) if self.kind == "lda" else width
        table = {"backbone": "features", "head": "linear", "init": self.kind, "standardize": True}
        shrinkage = {} if self.kind == "pca" or self.shrinkage is None else {"init_shrinkage": self.shrinkage}
        return {**table, **shrinkage, "dim": limit if self.dim is None else min(self.dim, limit)}


@dataclass(frozen=True)
class HeadCandidate:
    """A head that starts from a linear map and is trained.

    Attributes:
        start: The linear map.
        head: "linear" or "residual".
        loss: A registered loss.
        lr: Learning rate.
        batch_size: Items in a batch, at most.
    """

    start: LinearCandidate
    head: str
    loss: str
    lr: float
    batch_size: int

    @property
    def name(self) -> str:
        """A short description, unique among the candidates of a step."""
        return f"{self.loss}, rate {self.lr:g}, batch {self.batch_size}"

    def tables(self, width: int, classes: int, batch_shape: tuple[int, int], steps: int, seed: int) -> dict[str, Any]:
        """Return the tables of a run that trains this head.

        Args:
            width: Columns of the features.
            classes: Training classes.
            batch_shape: Items in a batch, and of each class in it.
            steps: Training steps.
            seed: Seed of the run.
        """
        model = self.start.model_table(width, classes)
        return {
            "seed": seed,
            "model": {**model, "head": self.head, "init_length": "auto"},
            "loss": {"name": self.loss},
            "miner": {"name": "auto"},
            "sampler": {"name": "spc", "batch_size": batch_shape[0], "per_class": batch_shape[1]},
            "optimizer": {"name": "adam", "lr": self.lr, "proxy_factor": 100.0},
            "training": {"steps": steps},
        }


@dataclass(frozen=True)
class TunedCandidate:
    """An image network whose head starts from a linear map, and whose last stages or adapters are trained with it.

    Attributes:
        start: The linear map.
        loss: A registered loss.
        lr: Learning rate.
        frozen_stages: As in [model].
        lora_rank: Rank of low-rank adapters in a backbone that is frozen otherwise; 0 has none.
        batch_size: Images in a batch, at most.
    """

    start: LinearCandidate
    loss: str
    lr: float
    frozen_stages: int = 0
    lora_rank: int = 0
    batch_size: int = 40

    @property
    def name(self) -> str:
        """A short description, unique among the candidates of a step."""
        trained = f"last {-self.frozen_stages} stages" if self.frozen_stages else "all stages"
        trained = f"adapters of rank {self.lora_rank}" if self.lora_rank else trained
        return f"{self.loss}, {trained}, rate {self.lr:g}"

    def tables(self, model: Mapping[str, Any], batch_shape: tuple[int, int], steps: int, seed: int) -> dict[str, Any]:
        """Return the tables of a run that trains this network.

        Args:
            model: [model] without the number of frozen stages.
            batch_shape: Images in a batch, and of each class in it.
            steps: Training steps.
            seed: Seed of the run.
        """
        adapters = {"lora": {"rank": self.lora_rank}} if self.lora_rank else {}
        return {
            **adapters,
            "seed": seed,
            "model": {**model, "head": "linear", "frozen_stages": self.frozen_stages, "init_length": "auto"},
            "loss": {"name": self.loss},
            "miner": {"name": "auto"},
            "sampler": {"name": "spc", "batch_size": batch_shape[0], "per_class": batch_shape[1]},
            "optimizer": {"name": "adamw", "lr": self.lr, "proxy_factor": 1000.0, "weight_decay": 4e-4},
            "training": {"steps": steps},
        }


def list_linear_candidates(step: str, width: int, classes: int) -> list[LinearCandidate]:
    """List the closed-form candidates of a step of the ladder.

    Args:
        step: One of the first three steps.
        width: Columns of the features.
        classes: Classes that a split fits to.
    """
    dims = [dim for dim in _DIMS if dim < width]
    if step == "centering and dimension":
        return [LinearCandidate("pca"), *(LinearCandidate("pca", dim) for dim in dims)]
    if step == "whitening":
        reduced = [dim for dim in (512, 128) if dim < width]
        kinds: tuple[LinearMapKind, ...] = ("half-whiten", "whiten")
        full = [LinearCandidate(kind, None, shrinkage) for kind in kinds for shrinkage in _WHITENING_SHRINKAGE]
        return full + [LinearCandidate(kind, dim, 0.0) for kind in kinds for dim in reduced]
    within = [LinearCandidate("within-whiten", None, shrinkage) for shrinkage in _WITHIN_SHRINKAGE]
    # with more classes than columns lda has all directions, and is a rotation of within-whiten
    discriminants: tuple[LinearMapKind, ...] = ("plda", "lda") if 2 < classes <= width else ("plda",)
    shrinkages = _LDA_SHRINKAGE if width <= _WIDE else _LDA_SHRINKAGE[::2]
    return within + [LinearCandidate(kind, None, shrinkage) for kind in discriminants for shrinkage in shrinkages]


def list_head_candidates(start: LinearCandidate, count: int, width: int) -> list[HeadCandidate]:
    """List the candidates of the race of linear heads, most promising first.

    Args:
        start: The best linear map, where heads start from. Half-whitened components, as in the recipe `features`, are
            the second start.
        count: Number of candidates, at most.
        width: Columns of the features.
    """
    dim = _MAX_HEAD_DIM if width > _MAX_HEAD_DIM else None
    starts = [replace(start, dim=dim) if start.dim is None else start, LinearCandidate("half-whiten", dim, 0.0)]
    ranked = {
        HeadCandidate(each, "linear", loss, rate, batch): ranks[0] + ranks[1] + ranks[2] + _SECOND_START * number
        for number, each in reversed([*enumerate(starts)])  # where both are equal, the first counts
        for loss, rate, batch, ranks in _SETTINGS
    }
    return sorted(ranked, key=lambda candidate: ranked[candidate])[:count]


def list_residual_candidates(finalists: Sequence[HeadCandidate]) -> list[HeadCandidate]:
    """List the candidates of the residual head: the finalists of the race, at their rate and at three times this."""
    candidates = [
        HeadCandidate(finalist.start, "residual", finalist.loss, factor * finalist.lr, finalist.batch_size)
        for finalist in finalists
        for factor in (1.0, 3.0)
    ]
    return [*dict.fromkeys(candidates)]


def list_tuned_candidates(
    start: LinearCandidate, loss: str, width: int, stages: int, has_attention: bool = False
) -> list[TunedCandidate]:
    """List the candidates of fine-tuning.

    Args:
        start: The linear map that the head starts from.
        loss: The loss that won the race of heads.
        width: Columns of the features.
        stages: Stages of the backbone; of most, the last two are trained.
        has_attention: Whether adapters can be added to its attention; these are the second candidate then.
    """
    dim = _MAX_HEAD_DIM if width > _MAX_HEAD_DIM else None
    frozen = -_TUNED_STAGES if stages > _TUNED_STAGES else 0
    start = replace(start, dim=dim) if start.dim is None else start
    candidates = [TunedCandidate(start, loss, rate, frozen) for rate in _TUNING_RATES]
    return (
        [candidates[0], TunedCandidate(start, loss, _LORA_RATE, lora_rank=_LORA_RANK)] if has_attention else candidates
    )
