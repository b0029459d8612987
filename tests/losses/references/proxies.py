"""Losses of rows against class proxies."""

import math
from collections.abc import Callable

from tests.losses.references.arithmetic import (
    Array,
    Mask,
    cosine,
    distance,
    dot,
    log_one_plus_sum_exp,
    log_sum_exp,
    marked,
    mean,
)
from tests.losses.references.catalog import proxy_reference


def mean_cross_entropy(positives: Mask, logits_for: Callable[[int, int], list[float]]) -> float:
    """Mean over rows of the mean over positive classes y of ``log sum_c e^{z_c} - z_y``.

    ``logits_for(row, y)`` gives the logits z of all classes when y is the target, so that a margin can depend on it.
    """
    values = []
    for row in range(positives.shape[0]):
        terms = []
        for target in marked(positives, row):
            logits = logits_for(row, target)
            terms.append(log_sum_exp(logits) - logits[target])
        values.append(mean(terms))
    return mean(values)


@proxy_reference("proxy-nca", {"scale": 1.5})
def proxy_nca(embeddings: Array, positives: Mask, proxies: Array, scale: float = 3.0) -> float:
    """Mean over rows of ``mean_{positive c} D_c + log sum_{negative c} e^{-D_c}``, ``D = scale^2 d^2``.

    Every row needs a class that is not positive.
    """
    values = []
    for row in range(len(embeddings)):
        positive_values, negative_values = [], []
        for c in range(len(proxies)):
            spread = scale**2 * distance(embeddings[row], proxies[c]) ** 2
            if positives[row, c]:
                positive_values.append(spread)
            else:
                negative_values.append(-spread)
        values.append(mean(positive_values) + log_sum_exp(negative_values))
    return mean(values)


@proxy_reference("proxy-anchor", {"margin": 0.2, "scale": 64.0})
def proxy_anchor(embeddings: Array, positives: Mask, proxies: Array, margin: float = 0.1, scale: float = 32.0) -> float:
    """Pull averaged over the classes with a positive row, plus push averaged over all classes.

    Pull of a class: ``log(1 + sum_{positive rows} e^{-scale (s - margin)})``.
    Push of a class: ``log(1 + sum_{negative rows} e^{scale (s + margin)})``.
    """
    pulls, pushes = [], []
    for c in range(len(proxies)):
        positive_values, negative_values = [], []
        for row in range(len(embeddings)):
            s = cosine(embeddings[row], proxies[c])
            if positives[row, c]:
                positive_values.append(-scale * (s - margin))
            else:
                negative_values.append(scale * (s + margin))
        if positive_values:
            pulls.append(log_one_plus_sum_exp(positive_values))
        pushes.append(log_one_plus_sum_exp(negative_values))
    return mean(pulls) + mean(pushes)


@proxy_reference("normalized-softmax", {"temperature": 0.5})
def normalized_softmax(embeddings: Array, positives: Mask, proxies: Array, temperature: float = 0.05) -> float:
    """Cross-entropy of the logits ``s / temperature``."""

    def logits_for(row: int, target: int) -> list[float]:
        return [cosine(embeddings[row], proxy) / temperature for proxy in proxies]

    return mean_cross_entropy(positives, logits_for)


@proxy_reference("softmax")
def softmax(embeddings: Array, positives: Mask, proxies: Array, bias: Array | None = None) -> float:
    """Cross-entropy of the logits ``dot + bias_c``; no bias is a bias of zero."""

    def logits_for(row: int, target: int) -> list[float]:
        logits = []
        for c in range(len(proxies)):
            offset = 0.0 if bias is None else float(bias[c])
            logits.append(dot(embeddings[row], proxies[c]) + offset)
        return logits

    return mean_cross_entropy(positives, logits_for)


@proxy_reference("cosface", {"margin": 0.1, "scale": 10.0})
def cosface(embeddings: Array, positives: Mask, proxies: Array, margin: float = 0.35, scale: float = 64.0) -> float:
    """Cross-entropy of the logits ``scale (s - margin)`` for the target and ``scale s`` for the other classes."""

    def logits_for(row: int, target: int) -> list[float]:
        logits = [scale * cosine(embeddings[row], proxy) for proxy in proxies]
        logits[target] -= scale * margin
        return logits

    return mean_cross_entropy(positives, logits_for)


@proxy_reference("arcface", {"margin": 0.2, "scale": 64.0}, {"margin": 2.5})
def arcface(embeddings: Array, positives: Mask, proxies: Array, margin: float = 0.5, scale: float = 16.0) -> float:
    """Cross-entropy of the logits ``scale cos(theta + margin)`` for the target and ``scale cos(theta)`` otherwise.

    ``theta = arccos(s)``. If ``theta + margin > pi`` the logit of the target is
    ``scale (cos(theta) - margin sin(margin))``. The margin is in radians.
    """

    def logits_for(row: int, target: int) -> list[float]:
        logits = []
        for c in range(len(proxies)):
            s = cosine(embeddings[row], proxies[c])
            theta = math.acos(min(1.0, max(-1.0, s)))  # rounding can leave the interval by one unit
            if c != target:
                logits.append(scale * s)
            elif theta + margin > math.pi:
                logits.append(scale * (s - margin * math.sin(margin)))
            else:
                logits.append(scale * math.cos(theta + margin))
        return logits

    return mean_cross_entropy(positives, logits_for)


@proxy_reference(
    "soft-triple",
    {"centers": 3, "scale": 20.0, "margin": 0.1, "temperature": 0.3, "regularization": 0.5},
    {"centers": 1},
)
def soft_triple(
    embeddings: Array,
    positives: Mask,
    proxies: Array,
    scale: float = 8.0,
    margin: float = 0.01,
    temperature: float = 0.1,
    regularization: float = 0.2,
) -> float:
    """Cross-entropy of the logits ``scale (S_c - margin [c is the target])``, plus the spread of the centers.

    ``S_c = sum_k w_k s_k`` over the K centers of class c, w = softmax of ``s_k / temperature`` over k.
    Spread: ``regularization * sum_c sum_{k<l} sqrt(2 + 1e-5 - 2 psi_ck.psi_cl) / (C K (K - 1))`` with unit centers psi;
    zero for one center per class.
    """
    classes, centers = proxies.shape[0], proxies.shape[1]

    def class_similarity(row: int, c: int) -> float:
        similarities = [cosine(embeddings[row], proxies[c, k]) for k in range(centers)]
        normalizer = log_sum_exp([s / temperature for s in similarities])
        return sum(math.exp(s / temperature - normalizer) * s for s in similarities)

    def logits_for(row: int, target: int) -> list[float]:
        logits = [scale * class_similarity(row, c) for c in range(classes)]
        logits[target] -= scale * margin
        return logits

    spread = 0.0
    for c in range(classes):
        for k in range(centers):
            for m in range(k + 1, centers):
                spread += math.sqrt(2.0 + 1e-5 - 2.0 * cosine(proxies[c, k], proxies[c, m]))
    if centers > 1:
        spread = regularization * spread / (classes * centers * (centers - 1))
    return mean_cross_entropy(positives, logits_for) + spread


@proxy_reference("sub-center-arcface", {"centers": 2, "margin": 0.2, "scale": 64.0}, {"centers": 1, "margin": 2.5})
def sub_center_arcface(
    embeddings: Array, positives: Mask, proxies: Array, margin: float = 0.5, scale: float = 16.0
) -> float:
    """ArcFace on the similarity of the nearest center of each class: ``cos(theta_c) = max_k s_ck``."""
    nearest = [
        [max(cosine(row, proxies[c, k]) for k in range(proxies.shape[1])) for c in range(proxies.shape[0])]
        for row in embeddings
    ]

    def logits_for(row: int, target: int) -> list[float]:
        logits = [scale * s for s in nearest[row]]
        theta = math.acos(min(1.0, max(-1.0, nearest[row][target])))
        logits[target] = scale * math.cos(theta + margin)
        if theta + margin > math.pi:
            logits[target] = scale * (nearest[row][target] - margin * math.sin(margin))
        return logits

    return mean_cross_entropy(positives, logits_for)


def shifted_cross_entropy(
    embeddings: Array, positives: Mask, proxies: Array, scales: list[float], target: Callable[[int, float], float]
) -> float:
    """Cross-entropy of ``scale_row cos(theta_c)``; that of the target class is ``target(row, theta)``."""

    def logits_for(row: int, y: int) -> list[float]:
        angles = [math.acos(max(-1.0, min(1.0, cosine(embeddings[row], proxy)))) for proxy in proxies]
        logits = [scales[row] * math.cos(angle) for angle in angles]
        logits[y] = target(row, angles[y])
        return logits

    return mean_cross_entropy(positives, logits_for)


@proxy_reference("sphereface", {"margin": 3, "blend": 0.0}, {"margin": 1})
def sphereface(embeddings: Array, positives: Mask, proxies: Array, margin: int = 4, blend: float = 5.0) -> float:
    """Logits ``|x| cos(theta)``; the target has ``|x| ((-1)^k cos(m theta) - 2k + blend cos(theta)) / (1 + blend)``."""
    lengths = [math.sqrt(dot(x, x)) for x in embeddings]

    def target(row: int, theta: float) -> float:
        k = min(margin - 1, math.floor(margin * theta / math.pi))
        psi = math.cos(math.pi * k) * math.cos(margin * theta) - 2 * k
        return lengths[row] * (psi + blend * math.cos(theta)) / (1 + blend)

    return shifted_cross_entropy(embeddings, positives, proxies, lengths, target)


@proxy_reference(
    "magface",
    {"low": 1.0, "high": 4.0, "scale": 8.0},
    {"low": 2.0, "high": 3.0, "low_margin": 0.1, "regularization": 3.0},
)
def magface(
    embeddings: Array,
    positives: Mask,
    proxies: Array,
    low: float = 10.0,
    high: float = 110.0,
    low_margin: float = 0.45,
    high_margin: float = 0.8,
    regularization: float = 20.0,
    scale: float = 64.0,
) -> float:
    """ArcFace with a margin by the clipped length a, plus ``regularization (a / high^2 + 1 / a)``."""
    lengths = [min(high, max(low, math.sqrt(dot(x, x)))) for x in embeddings]

    def target(row: int, theta: float) -> float:
        m = low_margin + (high_margin - low_margin) * (lengths[row] - low) / (high - low)
        return scale * (math.cos(theta + m) if theta + m < math.pi else math.cos(theta) - m * math.sin(m))

    penalties = [regularization * (a / high**2 + 1 / a) for a in lengths]
    return shifted_cross_entropy(embeddings, positives, proxies, [scale] * len(lengths), target) + mean(penalties)


@proxy_reference("adaface", {"margin": 0.3, "concentration": 1.5, "scale": 8.0}, detached_weights=True)
def adaface(
    embeddings: Array,
    positives: Mask,
    proxies: Array,
    margin: float = 0.4,
    concentration: float = 0.333,
    scale: float = 64.0,
) -> float:
    """The target has ``scale (cos(clip(theta - margin z, 0, pi)) - margin (1 + z))``, z the clipped relative length."""
    lengths = [min(100.0, max(0.001, math.sqrt(dot(x, x)))) for x in embeddings]
    center = sum(lengths) / len(lengths)
    deviation = math.sqrt(sum((a - center) ** 2 for a in lengths) / len(lengths))

    def target(row: int, theta: float) -> float:
        z = max(-1.0, min(1.0, concentration * (lengths[row] - center) / (deviation + 0.001)))
        return scale * (math.cos(min(math.pi, max(0.0, theta - margin * z))) - margin * (1 + z))

    return shifted_cross_entropy(embeddings, positives, proxies, [scale] * len(lengths), target)
