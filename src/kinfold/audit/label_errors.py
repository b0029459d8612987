"""Probable label errors: items whose label a classifier of the other items finds next to impossible."""

from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

FOLDS = 5
# A label is reported if its probability is below CUTOFF times that of guessing, 1 / classes. Labels below FIRST_CUTOFF
# times that are left out before the classifier is fitted a second time. docs/audit.md says how both were chosen.
CUTOFF = 0.02
FIRST_CUTOFF = 0.2
SHRINKAGE = 0.2  # of the covariance towards a multiple of the identity
MAX_FEATURES = 256  # principal directions that are used
_LEAST_LOG = -10.0  # a wrong label counts no more than this in the choice of the temperature


@dataclass(frozen=True)
class LabelCheck:
    """What a classifier of the other items says about each label.

    Args:
        label_probability: Probability of the item's label, (N,); 1 for classes with one item, which cannot be judged.
        suggested: The most probable class, (N,).
        suggested_probability: Its probability, (N,).
        suspicious: Whether the label is probably wrong, boolean (N,).
    """

    label_probability: Tensor
    suggested: Tensor
    suggested_probability: Tensor
    suspicious: Tensor


def check_labels(features: Tensor, labels: Tensor, generator: torch.Generator, cutoff: float = CUTOFF) -> LabelCheck:
    """Compute the out-of-fold probability of each label.

    Items are divided into five folds within their classes. For each fold, class means and a shared covariance of the
    other folds (linear discriminant analysis, with shrinkage) give the probabilities of its items. One temperature
    for all is fitted by the likelihood, in which a single wrong label counts little. Then all is fitted once more
    without the labels that were doubtful.

    Args:
        features: Unit vectors, float32 (N, d).
        labels: Class numbers from 0 without gaps, (N,).
        generator: Divides the items into folds.
        cutoff: A label is suspicious if its probability is below this many times 1 / classes.
    """
    rows, fold = _reduce(features), _draw_folds(labels, generator)
    index, classes = torch.arange(len(labels)), int(labels.max()) + 1
    judged = torch.bincount(labels)[labels] > 1
    trusted = torch.ones(len(labels), dtype=torch.bool)
    for _ in range(2):
        logits = _score_out_of_fold(rows, labels, fold, trusted)
        fitted = judged & trusted
        probabilities = torch.softmax(logits * _fit_temperature(logits[fitted], labels[fitted]), dim=1)
        label_probability = torch.where(judged, probabilities[index, labels], 1.0)
        trusted = label_probability >= FIRST_CUTOFF / classes
    best = probabilities.max(dim=1)
    return LabelCheck(
        label_probability, best.indices, best.values, (label_probability < cutoff / classes) & (best.indices != labels)
    )


def _reduce(features: Tensor) -> Tensor:
    """Return centered rows in their principal directions, float64 (N, k)."""
    centered = features.double() - features.double().mean(dim=0)
    width = min(MAX_FEATURES, centered.shape[1], max(1, len(centered) // 4))
    _, vectors = torch.linalg.eigh(centered.T @ centered)
    reduced: Tensor = centered @ vectors[:, -width:]
    return reduced


def _draw_folds(labels: Tensor, generator: torch.Generator) -> Tensor:
    """Return the fold of each item, drawn within its class, (N,)."""
    order = torch.randperm(len(labels), generator=generator)
    order = order[labels[order].argsort(stable=True)]
    fold = torch.empty(len(labels), dtype=torch.int64)
    fold[order] = torch.arange(len(labels)) % FOLDS
    return fold


def _score_out_of_fold(rows: Tensor, labels: Tensor, fold: Tensor, trusted: Tensor) -> Tensor:
    """Return minus half the squared Mahalanobis distance to each class mean of trusted items, (N, C)."""
    classes = int(labels.max()) + 1
    logits = torch.empty(len(labels), classes, dtype=torch.float64)
    for number in range(FOLDS):
        fitted, scored = (fold != number) & trusted, fold == number
        sizes = torch.bincount(labels[fitted], minlength=classes)
        sums = torch.zeros(classes, rows.shape[1], dtype=rows.dtype).index_add_(0, labels[fitted], rows[fitted])
        means = sums / sizes.clamp(min=1)[:, None]
        residuals = rows[fitted] - means[labels[fitted]]
        covariance = residuals.T @ residuals / len(residuals)
        level = covariance.diagonal().mean().clamp(min=1e-12)
        covariance = (1 - SHRINKAGE) * covariance + SHRINKAGE * level * torch.eye(len(covariance), dtype=rows.dtype)
        factor = torch.linalg.cholesky(covariance)
        white = torch.linalg.solve_triangular(factor, rows[scored].T, upper=False).T
        centers = torch.linalg.solve_triangular(factor, means.T, upper=False).T
        logits[scored] = torch.where(sizes > 0, -0.5 * torch.cdist(white, centers).square(), -1e9)
    return logits


def _fit_temperature(logits: Tensor, labels: Tensor) -> float:
    """Return the factor of the logits with the highest likelihood of the labels."""
    index = torch.arange(len(labels))

    def loss(log_factor: float) -> float:
        log_probabilities = torch.log_softmax(logits * float(np.exp(log_factor)), dim=1)[index, labels]
        return -float(log_probabilities.clamp(min=_LEAST_LOG).mean())

    return float(np.exp(minimize_scalar(loss, bounds=(-6.0, 3.0), method="bounded").x))
