"""Losses that weigh all positives and negatives of an anchor against each other."""

import math

from tests.losses.references.arithmetic import (
    Array,
    Mask,
    cosine,
    distance,
    dot,
    hinge,
    log_one_plus_sum_exp,
    log_sum_exp,
    marked,
    mean,
    mean_norm_power,
    raw_distance,
    unit,
    valid_anchors,
)
from tests.losses.references.catalog import reference


@reference("lifted")
def lifted(anchors: Array, references: Array, positives: Mask, negatives: Mask) -> float:
    """Mean over valid anchors of ``[log sum_P e^{-s} + log sum_N e^{s}]+``."""
    values = []
    for a, positive_rows, negative_rows in valid_anchors(positives, negatives):
        pull = log_sum_exp([-cosine(anchors[a], references[p]) for p in positive_rows])
        push = log_sum_exp([cosine(anchors[a], references[n]) for n in negative_rows])
        values.append(hinge(pull + push))
    return mean(values)


@reference("lifted-oh-song")
def lifted_oh_song(anchors: Array, references: Array, positives: Mask, negatives: Mask, margin: float = 1.0) -> float:
    """``1 / (2 * pairs) * sum_{i<j positive} [J_ij]+^2``, for a batch compared with itself (symmetric masks).

    ``J_ij = log( sum_{k in N_i} e^{margin - d_ik} + sum_{l in N_j} e^{margin - d_jl} ) + d_ij``. A positive pair whose
    two members both lack negatives is left out of the sum and of the count.
    """
    if len(anchors) != len(references):
        raise ValueError("the anchors must be the references")
    total, pairs = 0.0, 0
    for i in range(len(anchors)):
        for j in range(i + 1, len(anchors)):
            if not positives[i, j]:
                continue
            exponents = [margin - distance(anchors[i], references[k]) for k in marked(negatives, i)]
            exponents += [margin - distance(anchors[j], references[k]) for k in marked(negatives, j)]
            if not exponents:
                continue
            total += hinge(log_sum_exp(exponents) + distance(anchors[i], references[j])) ** 2
            pairs += 1
    if pairs == 0:
        return 0.0
    return total / (2.0 * pairs)


@reference("generalized-lifted", {"margin": 2.5, "regularization": 0.0}, {"regularization": 0.1, "norm_power": 1})
def generalized_lifted(
    anchors: Array,
    references: Array,
    positives: Mask,
    negatives: Mask,
    margin: float = 1.0,
    regularization: float = 0.005,
    norm_power: float = 2.0,
) -> float:
    """Mean over valid anchors of ``[log sum_P e^{d*} + log sum_N e^{margin - d*}]+``, plus the regularizer.

    The regularizer is ``regularization`` times the mean over all anchors of ``||a||^norm_power``.
    """
    values = []
    for a, positive_rows, negative_rows in valid_anchors(positives, negatives):
        pull = log_sum_exp([raw_distance(anchors[a], references[p]) for p in positive_rows])
        push = log_sum_exp([margin - raw_distance(anchors[a], references[n]) for n in negative_rows])
        values.append(hinge(pull + push))
    if not values:
        return 0.0
    return mean(values) + regularization * mean_norm_power(anchors, norm_power)


@reference("n-pair", {"regularization": 0.0}, {"regularization": 0.02, "norm_power": 1})
def n_pair(
    anchors: Array,
    references: Array,
    positives: Mask,
    negatives: Mask,
    regularization: float = 0.005,
    norm_power: float = 2.0,
) -> float:
    """Mean over valid anchors of ``mean_P log(1 + sum_N exp(dot_an - dot_ap))``, plus the regularizer.

    The regularizer is ``regularization`` times the mean over all anchors of ``||a||^norm_power``.
    """
    values = []
    for a, positive_rows, negative_rows in valid_anchors(positives, negatives):
        terms = []
        for p in positive_rows:
            exponents = [dot(anchors[a], references[n]) - dot(anchors[a], references[p]) for n in negative_rows]
            terms.append(log_one_plus_sum_exp(exponents))
        values.append(mean(terms))
    if not values:
        return 0.0
    return mean(values) + regularization * mean_norm_power(anchors, norm_power)


@reference("angular", {"angle": 30.0, "weight": 0.7}, {"angle": 55.0, "regularization": 0.1, "norm_power": 1})
def angular(
    anchors: Array,
    references: Array,
    positives: Mask,
    negatives: Mask,
    angle: float = 45.0,
    weight: float = 2.0,
    regularization: float = 0.005,
    norm_power: float = 2.0,
) -> float:
    """The n-pair value without regularizer, plus ``weight`` times the angular part, plus the regularizer of n-pair.

    Angular part: mean over valid anchors of ``mean_P log(1 + sum_N e^f)`` with unit vectors a, p, n and
    ``f = 4 tan^2(angle) (a + p).n - 2 (1 + tan^2(angle)) a.p``. The angle is in degrees.
    """
    tan_squared = math.tan(math.radians(angle)) ** 2
    values = []
    for a, positive_rows, negative_rows in valid_anchors(positives, negatives):
        anchor = unit(anchors[a])
        terms = []
        for p in positive_rows:
            positive = unit(references[p])
            exponents = []
            for n in negative_rows:
                negative = unit(references[n])
                across = dot(anchor, negative) + dot(positive, negative)
                exponents.append(4.0 * tan_squared * across - 2.0 * (1.0 + tan_squared) * dot(anchor, positive))
            terms.append(log_one_plus_sum_exp(exponents))
        values.append(mean(terms))
    if not values:
        return 0.0
    pairs = n_pair(anchors, references, positives, negatives, regularization=0.0)
    return pairs + weight * mean(values) + regularization * mean_norm_power(anchors, norm_power)


@reference(
    "multi-similarity",
    {"epsilon": None},
    {"positive_scale": 3.0, "negative_scale": 10.0, "threshold": 0.2, "epsilon": 0.5},
)
def multi_similarity(
    anchors: Array,
    references: Array,
    positives: Mask,
    negatives: Mask,
    positive_scale: float = 2.0,
    negative_scale: float = 40.0,
    threshold: float = 0.5,
    epsilon: float | None = 0.1,
) -> float:
    """Sum of the anchor values divided by the number of all anchors.

    ``(1/positive_scale) log(1 + sum_P exp(-positive_scale (s - threshold)))
    + (1/negative_scale) log(1 + sum_N exp(negative_scale (s - threshold)))``, where the sums run over the kept pairs:
    a negative is kept if ``s + epsilon > min_P s``, a positive if ``s - epsilon < max_N s``. An anchor with nothing
    kept on one side gives zero. Without epsilon all pairs are kept and an empty sum is zero.
    """
    values = []
    for a in range(len(anchors)):
        positive_cosines = [cosine(anchors[a], references[p]) for p in marked(positives, a)]
        negative_cosines = [cosine(anchors[a], references[n]) for n in marked(negatives, a)]
        if epsilon is not None:
            kept_positives, kept_negatives = [], []
            if positive_cosines and negative_cosines:
                kept_positives = [s for s in positive_cosines if s - epsilon < max(negative_cosines)]
                kept_negatives = [s for s in negative_cosines if s + epsilon > min(positive_cosines)]
            if not kept_positives or not kept_negatives:
                values.append(0.0)
                continue
            positive_cosines, negative_cosines = kept_positives, kept_negatives
        pull = log_one_plus_sum_exp([-positive_scale * (s - threshold) for s in positive_cosines]) / positive_scale
        push = log_one_plus_sum_exp([negative_scale * (s - threshold) for s in negative_cosines]) / negative_scale
        values.append(pull + push)
    return mean(values)


@reference(
    "hap2s",
    {"margin": 0.6, "sigma": 0.2},
    {"weighting": "polynomial"},
    {"weighting": "polynomial", "power": 3.0},
    detached_weights=True,
)
def hap2s(
    anchors: Array,
    references: Array,
    positives: Mask,
    negatives: Mask,
    margin: float = 0.2,
    sigma: float = 0.5,
    weighting: str = "exponential",
    power: float = 10.0,
) -> float:
    """Mean over valid anchors of ``[margin + sum_P w+ d - sum_N w- d]+``; the weights of each side sum to one.

    "exponential": ``w+ ~ exp(d / sigma)``, ``w- ~ exp(-d / sigma)``.
    "polynomial": ``w+ ~ d^power``, ``w- ~ d^-power``, with d not below 1e-6 in the weights.
    """

    def weight(d: float, sign: float) -> float:
        if weighting == "exponential":
            return math.exp(sign * d / sigma)
        if weighting == "polynomial":
            return float(max(d, 1e-6) ** (sign * power))
        raise ValueError(f"unknown weighting: {weighting}")

    values = []
    for a, positive_rows, negative_rows in valid_anchors(positives, negatives):
        near = [distance(anchors[a], references[p]) for p in positive_rows]
        far = [distance(anchors[a], references[n]) for n in negative_rows]
        pull = sum(weight(d, 1.0) * d for d in near) / sum(weight(d, 1.0) for d in near)
        push = sum(weight(d, -1.0) * d for d in far) / sum(weight(d, -1.0) for d in far)
        values.append(hinge(margin + pull - push))
    return mean(values)


@reference("nt-xent", {"temperature": 0.7})
def nt_xent(anchors: Array, references: Array, positives: Mask, negatives: Mask, temperature: float = 0.1) -> float:
    """Mean over valid anchors of ``mean_P -log( e^{s_ap/t} / (e^{s_ap/t} + sum_N e^{s_an/t}) )``."""
    values = []
    for a, positive_rows, negative_rows in valid_anchors(positives, negatives):
        negative_logits = [cosine(anchors[a], references[n]) / temperature for n in negative_rows]
        terms = []
        for p in positive_rows:
            logit = cosine(anchors[a], references[p]) / temperature
            terms.append(log_sum_exp([logit, *negative_logits]) - logit)
        values.append(mean(terms))
    return mean(values)


@reference("supcon", {"temperature": 0.7})
def supcon(anchors: Array, references: Array, positives: Mask, negatives: Mask, temperature: float = 0.1) -> float:
    """Mean over valid anchors of ``-(1/|P|) sum_P log( e^{s_ap/t} / sum_{P and N} e^{s/t} )``."""
    values = []
    for a, positive_rows, negative_rows in valid_anchors(positives, negatives):
        denominator = log_sum_exp(
            [cosine(anchors[a], references[r]) / temperature for r in positive_rows + negative_rows]
        )
        values.append(mean([denominator - cosine(anchors[a], references[p]) / temperature for p in positive_rows]))
    return mean(values)


@reference("circle", {"margin": 0.25, "scale": 256.0}, {"margin": 0.1, "scale": 5.0}, detached_weights=True)
def circle(
    anchors: Array,
    references: Array,
    positives: Mask,
    negatives: Mask,
    margin: float = 0.4,
    scale: float = 80.0,
) -> float:
    """Mean over valid anchors of ``log(1 + sum_N e^{scale an (s_n - margin)} sum_P e^{-scale ap (s_p - 1 + margin)})``.

    The factors are ``an = [s_n + margin]+`` and ``ap = [1 + margin - s_p]+``.
    """
    values = []
    for a, positive_rows, negative_rows in valid_anchors(positives, negatives):
        push, pull = [], []
        for n in negative_rows:
            s = cosine(anchors[a], references[n])
            push.append(scale * hinge(s + margin) * (s - margin))
        for p in positive_rows:
            s = cosine(anchors[a], references[p])
            pull.append(-scale * hinge(1.0 + margin - s) * (s - (1.0 - margin)))
        values.append(log_one_plus_sum_exp([x + y for x in push for y in pull]))
    return mean(values)


@reference("nca", {"scale": 7.0}, {"normalize": False, "scale": 0.3})
def nca(
    anchors: Array,
    references: Array,
    positives: Mask,
    negatives: Mask,
    scale: float = 1.0,
    normalize: bool = True,
) -> float:
    """Mean over valid anchors of ``-log( sum_P e^{-scale D} / sum_{P and N} e^{-scale D} )``, D = d^2 or d*^2."""
    measure = distance if normalize else raw_distance
    values = []
    for a, positive_rows, negative_rows in valid_anchors(positives, negatives):
        near = sum(math.exp(-scale * measure(anchors[a], references[p]) ** 2) for p in positive_rows)
        far = sum(math.exp(-scale * measure(anchors[a], references[n]) ** 2) for n in negative_rows)
        values.append(-math.log(near / (near + far)))
    return mean(values)


@reference("tuplet-margin", {"margin": 0.3, "scale": 8.0}, {"margin": 0.0, "scale": 2.0})
def tuplet_margin(
    anchors: Array,
    references: Array,
    positives: Mask,
    negatives: Mask,
    margin: float = 0.1,
    scale: float = 64.0,
) -> float:
    """Mean over valid anchors of ``mean_P log(1 + sum_N e^{scale (cos t_an - cos(t_ap - margin))})``."""
    values = []
    for a, positive_rows, negative_rows in valid_anchors(positives, negatives):
        terms = []
        for p in positive_rows:
            eased = math.cos(math.acos(cosine(anchors[a], references[p])) - margin)
            exponents = [scale * (cosine(anchors[a], references[n]) - eased) for n in negative_rows]
            terms.append(log_one_plus_sum_exp(exponents))
        values.append(mean(terms))
    return mean(values)
