"""From the parameters of a `MetricLearner`, checked in their own words, to the configuration of a run."""

import math
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

from kinfold import registry
from kinfold.metrics.lookup import find_metric
from kinfold.training.config.settings import (
    DataConfig,
    EvaluationConfig,
    ModelConfig,
    NamedConfig,
    OptimizerConfig,
    RunConfig,
    TrainingConfig,
)
from kinfold.training.defaults import PROXY_FACTOR, default_embedding_length, default_learning_rate, default_miner

HEADS = ("linear", "mlp")
STARTS = ("auto", "random", "pca", "half-whiten", "whiten")
DISTANCES = ("auto", "cosine", "dot", "euclidean")
LOOKS = 20  # evaluations on held-out classes in the course of a fit


def configuration(given: Mapping[str, Any], seed: int, classes: int) -> RunConfig:
    """What a fit to so many classes amounts to; a ValueError names the parameter that is wrong."""
    steps = whole("steps", given["steps"], 1)
    patience = None if given["patience"] is None else whole("patience", given["patience"], 1)
    share = _number("validation", given["validation"])
    _check_validation(share, patience, classes)
    head = _one_of("head", given["head"], HEADS)
    init = _one_of("init", given["init"], STARTS)
    if init == "auto":
        init = "half-whiten" if head == "linear" else "random"
    if init != "random" and head != "linear":
        raise ValueError(
            f"init={init!r} is a start for the linear head; use init='auto' or 'random' with head={head!r}"
        )
    find_metric(given["metric"])
    loss = NamedConfig(given["loss"], dict(given["loss_options"] or {}))
    lr = default_learning_rate(loss.name) if given["lr"] == "auto" else _number("lr", given["lr"])
    return RunConfig(
        seed=seed,
        data=DataConfig(name="X", validation=share, split_seed=seed),
        model=ModelConfig(
            "features",
            whole("dim", given["dim"], 1),
            head,
            init=init,  # type: ignore[arg-type]
            init_length=default_embedding_length(loss.name),
            standardize=True,
        ),
        loss=loss,
        miner=_miner(loss, given["miner"], given["miner_options"]),
        sampler=_sampler(given["batch_size"], given["per_class"]),
        optimizer=OptimizerConfig(
            name="adamw",
            lr=lr,
            loss_lr=None if given["loss_lr"] is None else _number("loss_lr", given["loss_lr"]),
            proxy_factor=PROXY_FACTOR,
            weight_decay=_number("weight_decay", given["weight_decay"]),
        ),
        training=TrainingConfig(steps=steps, device=given["device"]),
        evaluation=EvaluationConfig(
            every=max(1, steps // LOOKS),
            metrics=[given["metric"]],
            metric=given["metric"],
            selection="validation" if share else "last",
            patience=patience,
            distance=_one_of("distance", given["distance"], DISTANCES),  # type: ignore[arg-type]
            diagnose="never",
            batch_size=4096,
        ),
    )


def whole(name: str, value: Any, least: int) -> int:
    """As an int; numpy's integers, as searches draw them, are welcome."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")
    return int(value)


def _number(name: str, value: Any) -> float:
    if not isinstance(value, Real) or isinstance(value, bool) or not 0 <= float(value) < math.inf:
        raise ValueError(f"{name} must be a number from 0 up, got {value!r}")
    return float(value)


def _one_of(name: str, value: Any, known: tuple[str, ...]) -> str:
    if value not in known:
        near = registry.suggest(value, known) if isinstance(value, str) else ""
        raise ValueError(f"{name} must be one of {', '.join(map(repr, known))}, got {value!r}{near}")
    return str(value)


def _check_validation(share: float, patience: int | None, classes: int) -> None:
    if share >= 1:
        raise ValueError(f"validation is the share of the classes to hold out, in [0, 1), got {share:g}")
    if patience is not None and not share:
        raise ValueError("patience needs classes to look at: give validation, the share of the classes to hold out")
    held = round(share * classes)
    if share and (held < 1 or classes - held < 2):
        raise ValueError(
            f"validation={share:g} of {classes} classes holds {held} out and leaves {classes - held} to learn from, of "
            "at least 1 and 2; choose another share, or 0 to learn from all classes and take the last step"
        )


def _miner(loss: NamedConfig, miner: str | None, options: Mapping[str, Any] | None) -> NamedConfig | None:
    name = default_miner(loss.name, loss.options) if miner == "auto" else miner
    if name is None and options:
        raise ValueError(f"miner_options without a miner: {loss.name!r} has none unless you name one")
    return None if name is None else NamedConfig(name, dict(options or {}))


def _sampler(batch_size: Any, per_class: Any) -> NamedConfig:
    """As it was asked for; `batch_shape` fits it to the classes."""
    size, each = whole("batch_size", batch_size, 2), whole("per_class", per_class, 1)
    if size < 2 * each:
        raise ValueError(f"batch_size={size} has no room for two classes of per_class={each}; raise it to {2 * each}")
    return NamedConfig("spc", {"batch_size": size, "per_class": each})
