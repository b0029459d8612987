"""Metrics of the embeddings of a dataset, and the final scores of a run."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from kinfold import metrics
from kinfold.data import Dataset
from kinfold.metrics import Distance
from kinfold.metrics.graded import evaluate_graded, is_graded_metric
from kinfold.metrics.lookup import uses_coarse_labels, uses_gallery
from kinfold.training.loop.trainer import Trainer, is_finite

if TYPE_CHECKING:
    from kinfold.training.builder import RunBuilder


def compute_metrics(embeddings: Tensor, dataset: Dataset, names: Sequence[str], distance: Distance) -> dict[str, float]:
    """Compute metrics of the embeddings of a dataset.

    Queries are compared with their gallery where the dataset has these roles.

    Args:
        embeddings: (N, d), in the order of the dataset.
        dataset: Its labels and roles.
        names: Names of `kinfold.list("metrics")`.
        distance: "cosine", "dot", "euclidean" or "hyperbolic", see `kinfold.pairs.distances`.

    Returns:
        The value of every metric.
    """
    graded = [name for name in names if is_graded_metric(name)]
    if graded:
        values = compute_metrics(embeddings, dataset, [name for name in names if name not in graded], distance)
        values |= _compute_graded(embeddings, dataset, graded, distance)
        return {name: values[name] for name in names}
    if not names:
        return {}
    coarse = dataset.coarse if uses_coarse_labels(names) else None
    options: dict[str, Any] = {"metrics": names, "distance": distance}
    if dataset.role is None or not (dataset.role == "query").any():
        return metrics.evaluate(embeddings, dataset.labels, coarse_labels=coarse, **options)
    query, gallery = (torch.from_numpy(dataset.role == role) for role in ("query", "gallery"))
    reference = (embeddings[gallery], dataset.labels[gallery]) if uses_gallery(names) else ()
    coarse = None if coarse is None else coarse[query]
    return metrics.evaluate(embeddings[query], dataset.labels[query], *reference, coarse_labels=coarse, **options)


def _compute_graded(embeddings: Tensor, dataset: Dataset, names: Sequence[str], distance: Distance) -> dict[str, float]:
    """Compute metrics of related items, by the label table of the dataset."""
    assert dataset.label_table is not None, "checked before training"
    queries, gallery, table = embeddings, None, dataset.label_table
    if dataset.role is not None and (dataset.role == "query").any():
        query, others = ((dataset.role == role).nonzero()[0] for role in ("query", "gallery"))
        queries, gallery = embeddings[query], embeddings[others]
        table = table.take(np.concatenate([query, others]))
    return evaluate_graded(queries, table.relate_queries(len(queries)), gallery, names, distance)


def compute_final_scores(builder: "RunBuilder", trainer: Trainer) -> tuple[int, dict[str, Tensor], dict[str, Any]]:
    """Evaluate the selected weights, on the test classes for the first and only time.

    Args:
        builder: The run.
        trainer: Its loop, at the end.

    Returns:
        The selected step, the selected weights, and what scores.json will hold.
    """
    config, selection = builder.config.evaluation, trainer.selection
    weights = trainer.get_selected_weights()
    share = builder.config.training.start_share
    if share:
        if builder.start_weights is None:
            raise ValueError("the first weights of the run are gone, and training.start_share needs them: restore them")
        weights = mix_weights(builder.start_weights, weights, share)
    builder.model.load_state_dict(weights)
    is_best = selection.rule == "validation" and selection.best is not None
    step = selection.best_step if is_best else trainer.step_number
    scores: dict[str, Any] = {
        "selection": selection.rule,
        "inflated": selection.inflated,
        "step": step,
        # a run that ends with the weights it began with says nothing about its loss
        "selected_start": trainer.steps > 0 and selection.get_selected_step(trainer.step_number) == 0,
        "steps": trainer.steps if trainer.diverged is not None else trainer.step_number,
        "ended": _describe_end(trainer),
        "diverged": trainer.diverged is not None,
    }
    names = config.metrics if is_finite(weights) else []  # weights that are not finite cannot be evaluated
    test = None if builder.test is None else builder.test.open(trainer)
    if is_best:
        scores["validation"] = {name: selection.best_values[name] for name in names}
    elif builder.validation is not None:
        scores["validation"] = builder.compute_metrics(builder.model, builder.validation, names)
    if selection.inflated:
        scores["test"] = {name: value for name, (value, _) in selection.oracle.items()}
        scores["test_steps"] = {name: int(best_step) for name, (_, best_step) in selection.oracle.items()}
    elif test is not None:
        scores["test"] = builder.compute_metrics(builder.model, test, names)
    # retrieval among fewer classes is easier: scores are comparable only for the same number of classes
    splits = {"train": builder.train, "validation": builder.validation, "test": test}
    scores["classes"] = {name: len(split.classes) for name, split in splits.items() if split is not None}
    if config.diagnose != "never" and is_finite(weights):
        scores["train_space"] = builder.compute_metrics(builder.model, builder.train, config.diagnostics)
    scores["start"] = _compute_start_scores(builder, trainer, scores, test)
    return step, weights, scores


def mix_weights(start: Mapping[str, Tensor], trained: Mapping[str, Tensor], share: float) -> dict[str, Tensor]:
    """Return share * start + (1 - share) * trained of every floating-point weight; others are those of `trained`.

    Examples:
        >>> mix_weights({"w": torch.zeros(1)}, {"w": torch.ones(1)}, 0.25)
        {'w': tensor([0.7500])}
    """
    return {
        name: torch.lerp(value, start[name].to(value), share) if value.is_floating_point() else value
        for name, value in trained.items()
    }


def _compute_start_scores(
    builder: "RunBuilder", trainer: Trainer, scores: dict[str, Any], test: Dataset | None
) -> dict[str, dict[str, float]]:
    """Return the scores before the first step, on the same classes; the model has these weights afterwards."""
    names, selection = builder.config.evaluation.metrics, trainer.selection
    followed_split = "test" if selection.inflated else "validation"
    if builder.start_weights is not None:
        builder.model.load_state_dict(builder.start_weights)
    start = {}
    for split, dataset in {"validation": builder.validation, "test": test}.items():
        if split not in scores or dataset is None:
            continue
        if trainer.steps == 0:
            start[split] = scores[split]
        elif split == followed_split and selection.start_values is not None:
            start[split] = {name: selection.start_values[name] for name in names}
        elif builder.start_weights is not None:
            start[split] = builder.compute_metrics(builder.model, dataset, names)
    return start


def _describe_end(trainer: Trainer) -> str:
    if trainer.diverged is not None:
        return f"the loss or the weights were not finite at step {trainer.diverged}"
    stopped_early = trainer.selection.exhausted and trainer.step_number < trainer.steps
    return "no better value for too long" if stopped_early else "all steps done"
