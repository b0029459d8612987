"""The network before its first step: fresh, from a file of weights or from a run, and fitted to the training items."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from kinfold.models import Embedder, initialize
from kinfold.models.precomputed import PrecomputedFeatures
from kinfold.training import parts, warm_start
from kinfold.training.config.settings import ModelConfig, RunConfig


def create_start(given: RunConfig) -> tuple[Embedder, dict[str, Any] | None]:
    """Create the network with its first weights.

    Args:
        given: With every "auto" resolved.

    Returns:
        The network, and what was taken of the run that model.weights names; None where it names none.

    Raises:
        ValueError: Where the weights are missing or do not fit.
    """
    from_run = warm_start.names_run(given.model.weights)
    model = create_architecture(given) if from_run else _in_precision(parts.build_model(given), given)
    return model, warm_start.load_start(model, str(given.model.weights)) if from_run else None


def create_architecture(given: RunConfig) -> Embedder:
    """Create the network without reading weights, for those of a checkpoint or a run."""
    return _in_precision(parts.build_model(replace(given, model=replace(given.model, weights=None))), given)


def _in_precision(model: Embedder, given: RunConfig) -> Embedder:
    return model.double() if given.training.precision == "float64" else model


def fit_start(model: Embedder, settings: ModelConfig, features: Callable[[], Tensor], keep: Sequence[str] = ()) -> None:
    """Standardize the features and set the head to their principal components, where the settings ask for it.

    Args:
        model: As `create_start` made it; changed in place.
        settings: With every "auto" resolved.
        features: Gives `model.features` of all training items, (N, width); called only where it is needed.
        keep: Parts, "backbone" and "head", that came from a run and stay as they are.
    """
    standardize = settings.standardize and "backbone" not in keep
    if not standardize and (settings.init == "random" or "head" in keep):
        return
    rows = features()
    if standardize:
        assert isinstance(model.backbone, PrecomputedFeatures)  # nothing else takes the option
        rows = model.backbone.standardize(rows)
    if settings.init != "random" and "head" not in keep:
        initialize(model.head, rows, settings.init, settings.init_length)  # type: ignore[arg-type]  # "auto" is resolved
