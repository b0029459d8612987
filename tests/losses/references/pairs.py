"""Losses of the pairs of a relation, whichever anchor they belong to."""

import math

from tests.losses.references.arithmetic import (
    Array,
    Mask,
    beta_of,
    distance,
    hinge,
    log_one_plus_sum_exp,
    masked_cosines,
    masked_distances,
    mean,
)
from tests.losses.references.catalog import reference


def similarity_margin_value(
    positive_values: list[float], negative_values: list[float], margin: float, threshold: float
) -> float:
    """Mean over all pairs of ``[margin + threshold - s]+`` (positive) and ``[margin + s - threshold]+`` (negative)."""
    terms = [hinge(margin + threshold - s) for s in positive_values]
    terms += [hinge(margin + s - threshold) for s in negative_values]
    return mean(terms)


def similarity_contrastive_value(
    positive_values: list[float], negative_values: list[float], threshold: float, variant: str
) -> float:
    """Mean over all pairs of ``1 - s`` (positive) and ``[s - threshold]+`` (negative).

    In the variant "as-coded" a negative with ``s > threshold`` gives ``s``, and any other negative is left out of the
    sum and of the count.
    """
    terms = [1.0 - s for s in positive_values]
    for s in negative_values:
        if variant == "standard":
            terms.append(hinge(s - threshold))
        elif variant == "as-coded":
            if s > threshold:
                terms.append(s)
        else:
            raise ValueError(f"unknown variant: {variant}")
    return mean(terms)


def binomial_value(
    positive_values: list[float],
    negative_values: list[float],
    positive_scale: float,
    negative_scale: float,
    threshold: float,
) -> float:
    """Mean over all pairs of the binomial deviance.

    Positive: ``(2 / positive_scale) log(1 + exp(-positive_scale (s - threshold)))``.
    Negative: ``(2 / negative_scale) log(1 + exp(negative_scale (s - threshold)))``.
    """
    terms = [2.0 / positive_scale * log_one_plus_sum_exp([-positive_scale * (s - threshold)]) for s in positive_values]
    terms += [2.0 / negative_scale * log_one_plus_sum_exp([negative_scale * (s - threshold)]) for s in negative_values]
    return mean(terms)


def contrastive_value(
    positive_values: list[float],
    negative_values: list[float],
    margin: float,
    positive_margin: float,
    squared: bool,
    average: str,
) -> float:
    """``mean_positive [d - positive_margin]+ + mean_negative [margin - d]+``, each hinge squared if ``squared``.

    With the average "active" hinges that are zero are not counted.
    """
    power = 2 if squared else 1
    pull = [hinge(d - positive_margin) ** power for d in positive_values]
    push = [hinge(margin - d) ** power for d in negative_values]
    if average == "active":
        pull, push = [h for h in pull if h > 0], [h for h in push if h > 0]
    return mean(pull) + mean(push)


@reference("similarity-margin", {"margin": 0.4, "threshold": 0.1})
def similarity_margin(
    anchors: Array, references: Array, positives: Mask, negatives: Mask, margin: float = 0.2, threshold: float = 0.5
) -> float:
    """See `similarity_margin_value`; all pairs of the relation."""
    positive_values = masked_cosines(anchors, references, positives)
    negative_values = masked_cosines(anchors, references, negatives)
    return similarity_margin_value(positive_values, negative_values, margin, threshold)


@reference(
    "similarity-contrastive", {"threshold": 0.1}, {"variant": "as-coded"}, {"variant": "as-coded", "threshold": 0.0}
)
def similarity_contrastive(
    anchors: Array,
    references: Array,
    positives: Mask,
    negatives: Mask,
    threshold: float = 0.5,
    variant: str = "standard",
) -> float:
    """See `similarity_contrastive_value`; all pairs of the relation."""
    positive_values = masked_cosines(anchors, references, positives)
    negative_values = masked_cosines(anchors, references, negatives)
    return similarity_contrastive_value(positive_values, negative_values, threshold, variant)


@reference("binomial", {"positive_scale": 0.7, "negative_scale": 3.0, "threshold": -0.2})
def binomial(
    anchors: Array,
    references: Array,
    positives: Mask,
    negatives: Mask,
    positive_scale: float = 2.0,
    negative_scale: float = 40.0,
    threshold: float = 0.5,
) -> float:
    """See `binomial_value`; all pairs of the relation."""
    positive_values = masked_cosines(anchors, references, positives)
    negative_values = masked_cosines(anchors, references, negatives)
    return binomial_value(positive_values, negative_values, positive_scale, negative_scale, threshold)


@reference(
    "contrastive",
    {"margin": 1.3, "positive_margin": 0.4},
    {"squared": True},
    {"margin": 1.1, "positive_margin": 0.9, "average": "active"},
)
def contrastive(
    anchors: Array,
    references: Array,
    positives: Mask,
    negatives: Mask,
    margin: float = 1.0,
    positive_margin: float = 0.0,
    squared: bool = False,
    average: str = "all",
) -> float:
    """See `contrastive_value`; all pairs of the relation."""
    positive_values = masked_distances(anchors, references, positives)
    negative_values = masked_distances(anchors, references, negatives)
    return contrastive_value(positive_values, negative_values, margin, positive_margin, squared, average)


def margin_terms(
    anchor: Array, positive: Array | None, negative: Array | None, margin: float, beta: float
) -> list[float]:
    """``[d' - beta + margin]+`` of a positive and ``[beta - d' + margin]+`` of a negative, d' = sqrt(d^2 + 1e-8)."""
    terms = []
    if positive is not None:
        terms.append(hinge(math.sqrt(distance(anchor, positive) ** 2 + 1e-8) - beta + margin))
    if negative is not None:
        terms.append(hinge(beta - math.sqrt(distance(anchor, negative) ** 2 + 1e-8) + margin))
    return terms


@reference("margin", {"margin": 0.33, "beta": 0.8})
def margin_loss(
    anchors: Array,
    references: Array,
    positives: Mask,
    negatives: Mask,
    margin: float = 0.2,
    beta: float | Array = 1.2,
) -> float:
    """Sum of the terms of all pairs (see `margin_terms`), divided by ``max(1, number of terms above zero)``."""
    terms: list[float] = []
    for a in range(len(anchors)):
        for r in range(len(references)):
            if positives[a, r]:
                terms += margin_terms(anchors[a], references[r], None, margin, beta_of(beta, a))
            if negatives[a, r]:
                terms += margin_terms(anchors[a], None, references[r], margin, beta_of(beta, a))
    active = sum(1 for term in terms if term > 0.0)
    return sum(terms) / max(1, active)


@reference("histogram", {"bins": 11}, {"bins": 5}, {"bins": 151})
def histogram(anchors: Array, references: Array, positives: Mask, negatives: Mask, bins: int = 65) -> float:
    """``sum_r h-(r) sum_{q <= r} h+(q)`` with nodes ``t_r = -1 + r * step``, ``step = 2 / (bins - 1)``, r from zero.

    ``h+(r)`` and ``h-(r)`` are the means of ``max(0, 1 - |s - t_r| / step)`` over the positive and negative pairs.
    """
    positive_values = masked_cosines(anchors, references, positives)
    negative_values = masked_cosines(anchors, references, negatives)
    if not positive_values or not negative_values:
        return 0.0
    step = 2.0 / (bins - 1)
    total, cumulative = 0.0, 0.0
    for r in range(bins):
        node = -1.0 + r * step
        cumulative += mean([max(0.0, 1.0 - abs(s - node) / step) for s in positive_values])
        total += mean([max(0.0, 1.0 - abs(s - node) / step) for s in negative_values]) * cumulative
    return total


def threshold_consistent_value(
    positive_values: list[float],
    negative_values: list[float],
    positive_threshold: float,
    negative_threshold: float,
    positive_weight: float,
    negative_weight: float,
) -> float:
    """Weighted sum of the means of the hinges that are not zero, ``positive_threshold - s`` and ``s - negative...``."""
    pull = [positive_threshold - s for s in positive_values if s < positive_threshold]
    push = [s - negative_threshold for s in negative_values if s > negative_threshold]
    return positive_weight * mean(pull) + negative_weight * mean(push)


@reference(
    "threshold-consistent-margin",
    {"positive_threshold": 0.5, "negative_threshold": 0.1},
    {"positive_weight": 2.0, "negative_weight": 0.3, "negative_threshold": -0.2},
)
def threshold_consistent_margin(
    anchors: Array,
    references: Array,
    positives: Mask,
    negatives: Mask,
    positive_threshold: float = 0.9,
    negative_threshold: float = 0.5,
    positive_weight: float = 1.0,
    negative_weight: float = 1.0,
) -> float:
    """See `threshold_consistent_value`; all pairs of the relation."""
    positive_values = masked_cosines(anchors, references, positives)
    negative_values = masked_cosines(anchors, references, negatives)
    return threshold_consistent_value(
        positive_values, negative_values, positive_threshold, negative_threshold, positive_weight, negative_weight
    )


@reference("sigmoid", {"scale": 3.0, "bias": -0.5}, {"scale": 1.5, "bias": 0.25, "learn": False})
def sigmoid(
    anchors: Array,
    references: Array,
    positives: Mask,
    negatives: Mask,
    scale: float = 10.0,
    bias: float = -10.0,
    learn: bool = True,
) -> float:
    """``log(1 + e^{-z (scale s + bias)})``, z = 1 or -1, summed over pairs and divided by the anchors that have any."""
    total = sum(log_one_plus_sum_exp([-scale * s - bias]) for s in masked_cosines(anchors, references, positives))
    total += sum(log_one_plus_sum_exp([scale * s + bias]) for s in masked_cosines(anchors, references, negatives))
    rows = sum(1 for a in range(len(anchors)) if positives[a].any() or negatives[a].any())
    return total / max(1, rows)
