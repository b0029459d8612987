"""What "auto" stands for with a dataset."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from kinfold import registry
from kinfold.data import Dataset, Rows
from kinfold.training.config.defaults import compares_raw_vectors
from kinfold.training.config.settings import DataConfig, EvaluationConfig, ModelConfig, NamedConfig, RunConfig

VALIDATION_SHARE = 0.2  # of the training classes, where selection needs validation classes
_SMALL_IMAGE = 64  # pixels; conv4 is the default backbone up to this size


def resolve_config(config: RunConfig, dataset: Dataset) -> RunConfig:
    """Replace every "auto" by what it stands for with this dataset.

    Relative paths become absolute, so that the run can be resumed from any folder.

    Raises:
        ValueError: The backbone does not fit the items, or has to be chosen.
    """
    return replace(
        config,
        model=_resolve_model(config.model, dataset),
        data=_resolve_data(config.data, config.evaluation),
        evaluation=_resolve_evaluation(config.evaluation, config.loss),
    )


def _resolve_model(model: ModelConfig, dataset: Dataset) -> ModelConfig:
    shape = getattr(dataset.items[0], "shape", None)
    is_features = isinstance(dataset.items, Rows) and shape is not None and len(shape) == 1
    if model.backbone == "auto":
        is_small = shape is not None and len(shape) == 2 and max(shape) <= _SMALL_IMAGE
        if not is_features and not is_small:
            raise ValueError(
                "model.backbone must be chosen for images such as these: efficientnet-lite0 with weights = 'imagenet' "
                f"is a good start on a CPU; there are {', '.join(registry.names('backbones'))}"
            )
        model = replace(model, backbone="features" if is_features else "conv4")
    if is_features != (model.backbone == "features"):
        kind = "rows of features" if is_features else "images"
        raise ValueError(f"{dataset.name} holds {kind}, which the backbone {model.backbone!r} does not take")
    if model.standardize and not is_features:
        raise ValueError("model.standardize is for rows of features, and these are images; leave it out")
    if is_features and shape is not None:
        model = replace(model, backbone_options={"width": shape[0], **model.backbone_options})
        if model.head == "linear":
            model = replace(model, dim=min(model.dim, shape[0]))  # a linear map cannot add dimensions
    if model.init == "auto":
        model = replace(model, init="half-whiten" if is_features and model.head == "linear" else "random")
    if model.head == "identity":
        model = replace(model, standardize=False)  # the features as they are
    if model.weights is not None and Path(model.weights).exists():
        model = replace(model, weights=str(Path(model.weights).resolve()))
    return model


def _resolve_data(data: DataConfig, evaluation: EvaluationConfig) -> DataConfig:
    if data.root is not None:
        data = replace(data, root=str(Path(data.root).resolve()))
    if data.validation is None:
        data = replace(data, validation=VALIDATION_SHARE if evaluation.selection == "validation" else 0.0)
    return data


def _resolve_evaluation(evaluation: EvaluationConfig, loss: NamedConfig) -> EvaluationConfig:
    if evaluation.distance != "auto":
        return evaluation
    distance: Any = loss.options.get("distance")
    if distance is None:
        distance = "euclidean" if compares_raw_vectors(loss.name) else "cosine"
    return replace(evaluation, distance="cosine" if distance == "snr" else distance)
