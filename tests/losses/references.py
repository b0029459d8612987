"""Slow reference values of the losses, for comparison with the library.

Every function is written as loops over single pairs, so that it can be read next to its formula. All arithmetic is in
double precision. The functions return the value of the reduction "mean".

Notation used in the docstrings:

* ``a`` is an anchor row, ``P`` and ``N`` are its positives and negatives among the reference rows.
* ``[z]+`` is ``max(z, 0)``.
* ``s`` (cos) is the cosine of two rows, ``d`` the Euclidean distance of the two rows after scaling to unit length,
  ``d*`` the Euclidean distance of the rows as given, ``dot`` their plain inner product.
* An anchor is *valid* when it has at least one positive and at least one negative.
* A mean over nothing is zero. A loss that averages over valid anchors or over triplets is zero when there are none, and
  this includes its regulariser.
"""

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Triplet = tuple[int, int, int]
Quadruplet = tuple[int, int, int, int | None]


# ----------------------------------------------------------------------------------------------------------------------
# Scalars
# ----------------------------------------------------------------------------------------------------------------------


def hinge(value: float) -> float:
    """``[z]+ = max(z, 0)``."""
    return max(value, 0.0)


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean, zero for an empty list."""
    if len(values) == 0:
        return 0.0
    return sum(values) / len(values)


def sigmoid(value: float) -> float:
    """``1 / (1 + e^-z)``, arranged so that the exponential never overflows."""
    if value >= 0.0:
        return 1.0 / (1.0 + math.exp(-value))
    return math.exp(value) / (1.0 + math.exp(value))


def log_sum_exp(values: Sequence[float]) -> float:
    """``log sum_i e^{z_i}`` with the largest term taken out of the sum; the list must not be empty."""
    largest = max(values)
    return largest + math.log(sum(math.exp(value - largest) for value in values))


def log_one_plus_sum_exp(values: Sequence[float]) -> float:
    """``log(1 + sum_i e^{z_i})``: the one is the exponential of an additional zero. Zero for an empty list."""
    return log_sum_exp([0.0, *values])


# ----------------------------------------------------------------------------------------------------------------------
# Vectors
# ----------------------------------------------------------------------------------------------------------------------


def dot(left: Array, right: Array) -> float:
    """``sum_m u_m v_m``."""
    total = 0.0
    for m in range(len(left)):
        total += float(left[m]) * float(right[m])
    return total


def norm(vector: Array) -> float:
    """Euclidean length."""
    return math.sqrt(dot(vector, vector))


def unit(vector: Array) -> Array:
    """The vector divided by its length; a zero vector stays zero."""
    length = norm(vector)
    if length == 0.0:
        return vector
    return vector / length


def cosine(left: Array, right: Array) -> float:
    """``s``: inner product of the two unit vectors."""
    return dot(unit(left), unit(right))


def raw_distance(left: Array, right: Array) -> float:
    """``d*``: Euclidean distance of the vectors as given."""
    return norm(left - right)


def distance(left: Array, right: Array) -> float:
    """``d``: Euclidean distance of the two unit vectors."""
    return raw_distance(unit(left), unit(right))


def distance_or_square(left: Array, right: Array, squared: bool) -> float:
    """``d^2`` if ``squared``, otherwise ``d``."""
    value = distance(left, right)
    return value * value if squared else value


def variance(vector: Array) -> float:
    """Population variance over the features."""
    centre = mean([float(value) for value in vector])
    return mean([(float(value) - centre) ** 2 for value in vector])


def noise_to_signal(anchor: Array, other: Array) -> float:
    """``SNRd(a, x) = Var(a - x) / Var(a)`` of the two unit vectors."""
    return variance(unit(anchor) - unit(other)) / variance(unit(anchor))


# ----------------------------------------------------------------------------------------------------------------------
# Relations
# ----------------------------------------------------------------------------------------------------------------------


def marked(mask: Mask, row: int) -> list[int]:
    """Columns that are true in one row of the mask."""
    return [column for column in range(mask.shape[1]) if mask[row, column]]


def valid_anchors(positives: Mask, negatives: Mask) -> Iterator[tuple[int, list[int], list[int]]]:
    """``(a, P, N)`` for every anchor with at least one positive and one negative."""
    for a in range(positives.shape[0]):
        own, other = marked(positives, a), marked(negatives, a)
        if own and other:
            yield a, own, other


def all_triplets(positives: Mask, negatives: Mask) -> list[Triplet]:
    """Every ``(a, p, n)`` with p in P and n in N."""
    return [(a, p, n) for a, own, other in valid_anchors(positives, negatives) for p in own for n in other]


def masked_cosines(anchors: Array, references: Array, mask: Mask) -> list[float]:
    """Cosine of every pair that is true in the mask."""
    return [cosine(anchors[a], references[r]) for a in range(len(anchors)) for r in marked(mask, a)]


def masked_distances(anchors: Array, references: Array, mask: Mask) -> list[float]:
    """Distance ``d`` of every pair that is true in the mask."""
    return [distance(anchors[a], references[r]) for a in range(len(anchors)) for r in marked(mask, a)]


def mean_norm_power(anchors: Array, norm_power: float) -> float:
    """Regulariser: mean over all anchors of ``||a||^norm_power``."""
    return mean([norm(anchor) ** norm_power for anchor in anchors])


def beta_of(beta: float | Array, row: int) -> float:
    """The boundary of one anchor: the number itself, or the entry of the array that belongs to the anchor row."""
    if isinstance(beta, np.ndarray) and beta.ndim > 0:
        return float(beta[row])
    return float(beta)


# ----------------------------------------------------------------------------------------------------------------------
# Values of a list of positive pairs and a list of negative pairs, used for masks and for triplets
# ----------------------------------------------------------------------------------------------------------------------


def similarity_margin_value(own: list[float], other: list[float], margin: float, threshold: float) -> float:
    """Mean over all pairs of ``[margin + threshold - s]+`` (positive) and ``[margin + s - threshold]+`` (negative)."""
    terms = [hinge(margin + threshold - s) for s in own]
    terms += [hinge(margin + s - threshold) for s in other]
    return mean(terms)


def similarity_contrastive_value(own: list[float], other: list[float], threshold: float, variant: str) -> float:
    """Mean over all pairs of ``1 - s`` (positive) and ``[s - threshold]+`` (negative).

    In the variant "as-coded" a negative with ``s > threshold`` gives ``s``, and any other negative is left out of the
    sum and of the count.
    """
    terms = [1.0 - s for s in own]
    for s in other:
        if variant == "standard":
            terms.append(hinge(s - threshold))
        elif variant == "as-coded":
            if s > threshold:
                terms.append(s)
        else:
            raise ValueError(f"unknown variant: {variant}")
    return mean(terms)


def binomial_value(
    own: list[float], other: list[float], positive_scale: float, negative_scale: float, threshold: float
) -> float:
    """Mean over all pairs of the binomial deviance.

    Positive: ``(2 / positive_scale) log(1 + exp(-positive_scale (s - threshold)))``.
    Negative: ``(2 / negative_scale) log(1 + exp(negative_scale (s - threshold)))``.
    """
    terms = [2.0 / positive_scale * log_one_plus_sum_exp([-positive_scale * (s - threshold)]) for s in own]
    terms += [2.0 / negative_scale * log_one_plus_sum_exp([negative_scale * (s - threshold)]) for s in other]
    return mean(terms)


def contrastive_value(
    own: list[float], other: list[float], margin: float, positive_margin: float, squared: bool
) -> float:
    """``mean_positive [d - positive_margin]+ + mean_negative [margin - d]+``, each hinge squared if ``squared``."""
    power = 2 if squared else 1
    pull = [hinge(d - positive_margin) ** power for d in own]
    push = [hinge(margin - d) ** power for d in other]
    return mean(pull) + mean(push)


# ----------------------------------------------------------------------------------------------------------------------
# Losses of a relation given by masks
# ----------------------------------------------------------------------------------------------------------------------


def similarity_margin(
    anchors: Array, references: Array, positives: Mask, negatives: Mask, margin: float = 0.2, threshold: float = 0.5
) -> float:
    """See `similarity_margin_value`; all pairs of the relation."""
    own = masked_cosines(anchors, references, positives)
    other = masked_cosines(anchors, references, negatives)
    return similarity_margin_value(own, other, margin, threshold)


def similarity_contrastive(
    anchors: Array,
    references: Array,
    positives: Mask,
    negatives: Mask,
    threshold: float = 0.5,
    variant: str = "standard",
) -> float:
    """See `similarity_contrastive_value`; all pairs of the relation."""
    own = masked_cosines(anchors, references, positives)
    other = masked_cosines(anchors, references, negatives)
    return similarity_contrastive_value(own, other, threshold, variant)


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
    own = masked_cosines(anchors, references, positives)
    other = masked_cosines(anchors, references, negatives)
    return binomial_value(own, other, positive_scale, negative_scale, threshold)


def contrastive(
    anchors: Array,
    references: Array,
    positives: Mask,
    negatives: Mask,
    margin: float = 1.0,
    positive_margin: float = 0.0,
    squared: bool = False,
) -> float:
    """See `contrastive_value`; all pairs of the relation."""
    own = masked_distances(anchors, references, positives)
    other = masked_distances(anchors, references, negatives)
    return contrastive_value(own, other, margin, positive_margin, squared)


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


def triplet(
    anchors: Array,
    references: Array,
    positives: Mask,
    negatives: Mask,
    margin: float = 0.2,
    squared: bool = True,
    average: str = "all",
) -> float:
    """See `triplet_from_triplets`; all triplets of the relation."""
    triplets = all_triplets(positives, negatives)
    return triplet_from_triplets(anchors, references, triplets, margin, squared, average)


def lifted(anchors: Array, references: Array, positives: Mask, negatives: Mask) -> float:
    """Mean over valid anchors of ``[log sum_P e^{-s} + log sum_N e^{s}]+``."""
    values = []
    for a, own, other in valid_anchors(positives, negatives):
        pull = log_sum_exp([-cosine(anchors[a], references[p]) for p in own])
        push = log_sum_exp([cosine(anchors[a], references[n]) for n in other])
        values.append(hinge(pull + push))
    return mean(values)


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


def generalized_lifted(
    anchors: Array,
    references: Array,
    positives: Mask,
    negatives: Mask,
    margin: float = 1.0,
    regularization: float = 0.005,
    norm_power: float = 2.0,
) -> float:
    """Mean over valid anchors of ``[log sum_P e^{d*} + log sum_N e^{margin - d*}]+``, plus the regulariser.

    The regulariser is ``regularization`` times the mean over all anchors of ``||a||^norm_power``.
    """
    values = []
    for a, own, other in valid_anchors(positives, negatives):
        pull = log_sum_exp([raw_distance(anchors[a], references[p]) for p in own])
        push = log_sum_exp([margin - raw_distance(anchors[a], references[n]) for n in other])
        values.append(hinge(pull + push))
    if not values:
        return 0.0
    return mean(values) + regularization * mean_norm_power(anchors, norm_power)


def n_pair(
    anchors: Array,
    references: Array,
    positives: Mask,
    negatives: Mask,
    regularization: float = 0.005,
    norm_power: float = 2.0,
) -> float:
    """Mean over valid anchors of ``mean_P log(1 + sum_N exp(dot_an - dot_ap))``, plus the regulariser.

    The regulariser is ``regularization`` times the mean over all anchors of ``||a||^norm_power``.
    """
    values = []
    for a, own, other in valid_anchors(positives, negatives):
        terms = []
        for p in own:
            exponents = [dot(anchors[a], references[n]) - dot(anchors[a], references[p]) for n in other]
            terms.append(log_one_plus_sum_exp(exponents))
        values.append(mean(terms))
    if not values:
        return 0.0
    return mean(values) + regularization * mean_norm_power(anchors, norm_power)


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
    """The n-pair value without regulariser, plus ``weight`` times the angular part, plus the regulariser of n-pair.

    Angular part: mean over valid anchors of ``mean_P log(1 + sum_N e^f)`` with unit vectors a, p, n and
    ``f = 4 tan^2(angle) (a + p).n - 2 (1 + tan^2(angle)) a.p``. The angle is in degrees.
    """
    tan_squared = math.tan(math.radians(angle)) ** 2
    values = []
    for a, own, other in valid_anchors(positives, negatives):
        anchor = unit(anchors[a])
        terms = []
        for p in own:
            positive = unit(references[p])
            exponents = []
            for n in other:
                negative = unit(references[n])
                across = dot(anchor, negative) + dot(positive, negative)
                exponents.append(4.0 * tan_squared * across - 2.0 * (1.0 + tan_squared) * dot(anchor, positive))
            terms.append(log_one_plus_sum_exp(exponents))
        values.append(mean(terms))
    if not values:
        return 0.0
    pairs = n_pair(anchors, references, positives, negatives, regularization=0.0)
    return pairs + weight * mean(values) + regularization * mean_norm_power(anchors, norm_power)


def histogram(anchors: Array, references: Array, positives: Mask, negatives: Mask, bins: int = 65) -> float:
    """``sum_r h-(r) sum_{q <= r} h+(q)`` with nodes ``t_r = -1 + r * step``, ``step = 2 / (bins - 1)``, r from zero.

    ``h+(r)`` and ``h-(r)`` are the means of ``max(0, 1 - |s - t_r| / step)`` over the positive and negative pairs.
    """
    own = masked_cosines(anchors, references, positives)
    other = masked_cosines(anchors, references, negatives)
    if not own or not other:
        return 0.0
    step = 2.0 / (bins - 1)
    total, cumulative = 0.0, 0.0
    for r in range(bins):
        node = -1.0 + r * step
        cumulative += mean([max(0.0, 1.0 - abs(s - node) / step) for s in own])
        total += mean([max(0.0, 1.0 - abs(s - node) / step) for s in other]) * cumulative
    return total


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
        own = [cosine(anchors[a], references[p]) for p in marked(positives, a)]
        other = [cosine(anchors[a], references[n]) for n in marked(negatives, a)]
        if epsilon is not None:
            kept_own, kept_other = [], []
            if own and other:
                kept_own = [s for s in own if s - epsilon < max(other)]
                kept_other = [s for s in other if s + epsilon > min(own)]
            if not kept_own or not kept_other:
                values.append(0.0)
                continue
            own, other = kept_own, kept_other
        pull = log_one_plus_sum_exp([-positive_scale * (s - threshold) for s in own]) / positive_scale
        push = log_one_plus_sum_exp([negative_scale * (s - threshold) for s in other]) / negative_scale
        values.append(pull + push)
    return mean(values)


def fastap(anchors: Array, references: Array, positives: Mask, negatives: Mask, bins: int = 10) -> float:
    """Mean over valid anchors of ``1 - AP``, ``AP = (1/|P|) sum_l H+_l h+_l / H_l`` over the nodes with ``H_l > 0``.

    Nodes ``4 l / bins`` for l = 0..bins on the squared distance. ``h+_l`` is the sum of
    ``max(0, 1 - |d^2 - node| / (4 / bins))`` over the positives, ``h_l`` the sum over positives and negatives, and
    ``H+_l``, ``H_l`` are the sums of ``h+``, ``h`` up to and including node l.
    """
    width = 4.0 / bins
    values = []
    for a, own, other in valid_anchors(positives, negatives):
        precision, total_own, total_all = 0.0, 0.0, 0.0
        for node_index in range(bins + 1):
            node = 4.0 * node_index / bins
            count_own, count_all = 0.0, 0.0
            for r in own + other:
                share = max(0.0, 1.0 - abs(distance(anchors[a], references[r]) ** 2 - node) / width)
                count_all += share
                if r in own:
                    count_own += share
            total_own += count_own
            total_all += count_all
            if total_all > 0.0:
                precision += total_own * count_own / total_all
        values.append(1.0 - precision / len(own))
    return mean(values)


def ranked_list(
    anchors: Array,
    references: Array,
    positives: Mask,
    negatives: Mask,
    margin: float = 0.4,
    boundary: float = 1.2,
    temperature: float = 10.0,
    balance: float = 0.5,
) -> float:
    """Mean over valid anchors of ``(1 - balance) * pull + balance * push``.

    ``pull``: mean of ``d - (boundary - margin)`` over the positives with ``d > boundary - margin``.
    ``push``: ``sum w (boundary - d) / sum w`` over the negatives with ``d < boundary``,
    ``w = exp(temperature (boundary - d))``. Either is zero when no pair qualifies.
    """
    values = []
    for a, own, other in valid_anchors(positives, negatives):
        gaps = []
        for p in own:
            d = distance(anchors[a], references[p])
            if d > boundary - margin:
                gaps.append(d - (boundary - margin))
        weighted, weights = 0.0, 0.0
        for n in other:
            d = distance(anchors[a], references[n])
            if d < boundary:
                weight = math.exp(temperature * (boundary - d))
                weighted += weight * (boundary - d)
                weights += weight
        push = weighted / weights if weights > 0.0 else 0.0
        values.append((1.0 - balance) * mean(gaps) + balance * push)
    return mean(values)


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
    for a, own, other in valid_anchors(positives, negatives):
        near = [distance(anchors[a], references[p]) for p in own]
        far = [distance(anchors[a], references[n]) for n in other]
        pull = sum(weight(d, 1.0) * d for d in near) / sum(weight(d, 1.0) for d in near)
        push = sum(weight(d, -1.0) * d for d in far) / sum(weight(d, -1.0) for d in far)
        values.append(hinge(margin + pull - push))
    return mean(values)


def nt_xent(anchors: Array, references: Array, positives: Mask, negatives: Mask, temperature: float = 0.1) -> float:
    """Mean over valid anchors of ``mean_P -log( e^{s_ap/t} / (e^{s_ap/t} + sum_N e^{s_an/t}) )``."""
    values = []
    for a, own, other in valid_anchors(positives, negatives):
        negative_logits = [cosine(anchors[a], references[n]) / temperature for n in other]
        terms = []
        for p in own:
            logit = cosine(anchors[a], references[p]) / temperature
            terms.append(log_sum_exp([logit, *negative_logits]) - logit)
        values.append(mean(terms))
    return mean(values)


def supcon(anchors: Array, references: Array, positives: Mask, negatives: Mask, temperature: float = 0.1) -> float:
    """Mean over valid anchors of ``-(1/|P|) sum_P log( e^{s_ap/t} / sum_{P and N} e^{s/t} )``."""
    values = []
    for a, own, other in valid_anchors(positives, negatives):
        denominator = log_sum_exp([cosine(anchors[a], references[r]) / temperature for r in own + other])
        values.append(mean([denominator - cosine(anchors[a], references[p]) / temperature for p in own]))
    return mean(values)


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
    for a, own, other in valid_anchors(positives, negatives):
        push, pull = [], []
        for n in other:
            s = cosine(anchors[a], references[n])
            push.append(scale * hinge(s + margin) * (s - margin))
        for p in own:
            s = cosine(anchors[a], references[p])
            pull.append(-scale * hinge(1.0 + margin - s) * (s - (1.0 - margin)))
        values.append(log_one_plus_sum_exp([x + y for x in push for y in pull]))
    return mean(values)


def smooth_ap(anchors: Array, references: Array, positives: Mask, negatives: Mask, temperature: float = 0.01) -> float:
    """Mean over valid anchors of ``1 - AP``, AP = mean over p in P of (soft rank among P) / (soft rank among all).

    A soft rank of p is ``1 + sum_j sigmoid((s_j - s_p) / temperature)`` over the other members j of the set.
    """
    values = []
    for a, own, other in valid_anchors(positives, negatives):
        ratios = []
        for p in own:
            s_p = cosine(anchors[a], references[p])
            rank_own, rank_all = 1.0, 1.0
            for j in own + other:
                if j == p:
                    continue
                step = sigmoid((cosine(anchors[a], references[j]) - s_p) / temperature)
                rank_all += step
                if j in own:
                    rank_own += step
            ratios.append(rank_own / rank_all)
        values.append(1.0 - mean(ratios))
    return mean(values)


def precision_at_k(
    anchors: Array, references: Array, positives: Mask, negatives: Mask, k: int = 4, margin: float = 0.1
) -> float:
    """Sum over anchors of ``sum_wrong s^ - sum_missed s^``, divided by the number of all anchors.

    ``s^ = s + margin`` for a negative and ``s^ = s`` for a positive; top = the k candidates with the largest s^.

    Fewer than k positives: missed = positives outside the top, wrong = as many lowest-ranked negatives of the top.
    Otherwise: wrong = negatives in the top, missed = as many highest-ranked positives outside the top.

    k is at most the number of candidates. An anchor that is not valid gives zero.
    """
    total = 0.0
    for a, own, other in valid_anchors(positives, negatives):
        score = {p: cosine(anchors[a], references[p]) for p in own}
        score.update({n: cosine(anchors[a], references[n]) + margin for n in other})
        ranking = sorted(sorted(score), key=lambda item: score[item], reverse=True)
        size = min(k, len(ranking))
        top, rest = ranking[:size], ranking[size:]
        if len(own) < size:
            missed = [item for item in rest if item in own]
            top_negatives = [item for item in top if item in other]
            wrong = top_negatives[len(top_negatives) - len(missed) :]
        else:
            wrong = [item for item in top if item in other]
            missed = [item for item in rest if item in own][: len(wrong)]
        total += sum(score[item] for item in wrong) - sum(score[item] for item in missed)
    return total / len(anchors) if len(anchors) else 0.0


def snr(
    anchors: Array,
    references: Array,
    positives: Mask,
    negatives: Mask,
    margin: float = 0.2,
    regularization: float = 0.005,
) -> float:
    """See `snr_from_triplets`; all triplets of the relation."""
    triplets = all_triplets(positives, negatives)
    return snr_from_triplets(anchors, references, triplets, margin, regularization)


# ----------------------------------------------------------------------------------------------------------------------
# Losses of listed triplets (a, p, n): a is a row of the anchors, p and n are rows of the references
# ----------------------------------------------------------------------------------------------------------------------


def triplet_cosines(anchors: Array, references: Array, triplets: Sequence[Triplet]) -> tuple[list[float], list[float]]:
    """Cosines of all (a, p) and of all (a, n)."""
    own = [cosine(anchors[a], references[p]) for a, p, _ in triplets]
    other = [cosine(anchors[a], references[n]) for a, _, n in triplets]
    return own, other


def similarity_margin_from_triplets(
    anchors: Array, references: Array, triplets: Sequence[Triplet], margin: float = 0.2, threshold: float = 0.5
) -> float:
    """See `similarity_margin_value`; two pairs per triplet."""
    own, other = triplet_cosines(anchors, references, triplets)
    return similarity_margin_value(own, other, margin, threshold)


def similarity_contrastive_from_triplets(
    anchors: Array,
    references: Array,
    triplets: Sequence[Triplet],
    threshold: float = 0.5,
    variant: str = "standard",
) -> float:
    """See `similarity_contrastive_value`; two pairs per triplet."""
    own, other = triplet_cosines(anchors, references, triplets)
    return similarity_contrastive_value(own, other, threshold, variant)


def binomial_from_triplets(
    anchors: Array,
    references: Array,
    triplets: Sequence[Triplet],
    positive_scale: float = 2.0,
    negative_scale: float = 40.0,
    threshold: float = 0.5,
) -> float:
    """See `binomial_value`; two pairs per triplet."""
    own, other = triplet_cosines(anchors, references, triplets)
    return binomial_value(own, other, positive_scale, negative_scale, threshold)


def contrastive_from_triplets(
    anchors: Array,
    references: Array,
    triplets: Sequence[Triplet],
    margin: float = 1.0,
    positive_margin: float = 0.0,
    squared: bool = False,
) -> float:
    """See `contrastive_value`; two pairs per triplet."""
    own = [distance(anchors[a], references[p]) for a, p, _ in triplets]
    other = [distance(anchors[a], references[n]) for a, _, n in triplets]
    return contrastive_value(own, other, margin, positive_margin, squared)


def triplet_from_triplets(
    anchors: Array,
    references: Array,
    triplets: Sequence[Triplet],
    margin: float = 0.2,
    squared: bool = True,
    average: str = "all",
) -> float:
    """``sum_t h / count`` with ``h = [D(a,p) - D(a,n) + margin]+``, D = d^2 if ``squared``, otherwise d.

    The count is the number of triplets ("all") or ``max(1, number of triplets with h > 0)`` ("active").
    """
    hinges = []
    for a, p, n in triplets:
        near = distance_or_square(anchors[a], references[p], squared)
        far = distance_or_square(anchors[a], references[n], squared)
        hinges.append(hinge(near - far + margin))
    if average == "all":
        return mean(hinges)
    if average == "active":
        return sum(hinges) / max(1, sum(1 for h in hinges if h > 0.0))
    raise ValueError(f"unknown average: {average}")


def margin_from_triplets(
    anchors: Array,
    references: Array,
    triplets: Sequence[Triplet],
    margin: float = 0.2,
    beta: float | Array = 1.2,
    variant: str = "standard",
) -> float:
    """Sum of both terms of all triplets (see `margin_terms`), divided by ``max(1, count)``.

    The count is the number of terms above zero ("standard") or of triplets with such a term ("as-coded").
    """
    total, active_terms, active_triplets = 0.0, 0, 0
    for a, p, n in triplets:
        terms = margin_terms(anchors[a], references[p], references[n], margin, beta_of(beta, a))
        active = sum(1 for term in terms if term > 0.0)
        total += sum(terms)
        active_terms += active
        if active > 0:
            active_triplets += 1
    if variant == "standard":
        return total / max(1, active_terms)
    if variant == "as-coded":
        return total / max(1, active_triplets)
    raise ValueError(f"unknown variant: {variant}")


def snr_from_triplets(
    anchors: Array,
    references: Array,
    triplets: Sequence[Triplet],
    margin: float = 0.2,
    regularization: float = 0.005,
) -> float:
    """``sum_t h / max(1, number with h > 0) + regularization * mean_a |sum_m a_m|``.

    ``h = [SNRd(a,p) - SNRd(a,n) + margin]+``. The second mean runs over all anchor rows, at unit length.
    """
    if len(triplets) == 0:
        return 0.0
    hinges = []
    for a, p, n in triplets:
        near = noise_to_signal(anchors[a], references[p])
        far = noise_to_signal(anchors[a], references[n])
        hinges.append(hinge(near - far + margin))
    active = sum(1 for h in hinges if h > 0.0)
    sums = [abs(sum(float(value) for value in unit(anchor))) for anchor in anchors]
    return sum(hinges) / max(1, active) + regularization * mean(sums)


def quadruplet(
    anchors: Array,
    references: Array,
    quadruplets: Sequence[Quadruplet],
    margin: float = 1.0,
    second_margin: float = 0.5,
    squared: bool = False,
) -> float:
    """``mean [D(a,p) - D(a,n) + margin]+ + mean [D(a,p) - D(n,l) + second_margin]+``.

    D = d^2 if ``squared``, otherwise d. The second mean runs over the tuples that have a fourth member l.
    """
    first, second = [], []
    for a, p, n, fourth in quadruplets:
        near = distance_or_square(anchors[a], references[p], squared)
        first.append(hinge(near - distance_or_square(anchors[a], references[n], squared) + margin))
        if fourth is not None:
            apart = distance_or_square(references[n], references[fourth], squared)
            second.append(hinge(near - apart + second_margin))
    return mean(first) + mean(second)


# ----------------------------------------------------------------------------------------------------------------------
# Losses of rows against class proxies
# ----------------------------------------------------------------------------------------------------------------------


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


def proxy_nca(embeddings: Array, positives: Mask, proxies: Array, scale: float = 3.0) -> float:
    """Mean over rows of ``mean_{positive c} D_c + log sum_{negative c} e^{-D_c}``, ``D = scale^2 d^2``.

    Every row needs a class that is not positive.
    """
    values = []
    for row in range(len(embeddings)):
        own, other = [], []
        for c in range(len(proxies)):
            spread = scale**2 * distance(embeddings[row], proxies[c]) ** 2
            if positives[row, c]:
                own.append(spread)
            else:
                other.append(-spread)
        values.append(mean(own) + log_sum_exp(other))
    return mean(values)


def proxy_anchor(embeddings: Array, positives: Mask, proxies: Array, margin: float = 0.1, scale: float = 32.0) -> float:
    """Pull averaged over the classes with a positive row, plus push averaged over all classes.

    Pull of a class: ``log(1 + sum_{positive rows} e^{-scale (s - margin)})``.
    Push of a class: ``log(1 + sum_{negative rows} e^{scale (s + margin)})``.
    """
    pulls, pushes = [], []
    for c in range(len(proxies)):
        own, other = [], []
        for row in range(len(embeddings)):
            s = cosine(embeddings[row], proxies[c])
            if positives[row, c]:
                own.append(-scale * (s - margin))
            else:
                other.append(scale * (s + margin))
        if own:
            pulls.append(log_one_plus_sum_exp(own))
        pushes.append(log_one_plus_sum_exp(other))
    return mean(pulls) + mean(pushes)


def normalized_softmax(embeddings: Array, positives: Mask, proxies: Array, temperature: float = 0.05) -> float:
    """Cross-entropy of the logits ``s / temperature``."""

    def logits_for(row: int, target: int) -> list[float]:
        return [cosine(embeddings[row], proxy) / temperature for proxy in proxies]

    return mean_cross_entropy(positives, logits_for)


def softmax(embeddings: Array, positives: Mask, proxies: Array, bias: Array | None = None) -> float:
    """Cross-entropy of the logits ``dot + bias_c``; no bias is a bias of zero."""

    def logits_for(row: int, target: int) -> list[float]:
        logits = []
        for c in range(len(proxies)):
            offset = 0.0 if bias is None else float(bias[c])
            logits.append(dot(embeddings[row], proxies[c]) + offset)
        return logits

    return mean_cross_entropy(positives, logits_for)


def cosface(embeddings: Array, positives: Mask, proxies: Array, margin: float = 0.35, scale: float = 64.0) -> float:
    """Cross-entropy of the logits ``scale (s - margin)`` for the target and ``scale s`` for the other classes."""

    def logits_for(row: int, target: int) -> list[float]:
        logits = [scale * cosine(embeddings[row], proxy) for proxy in proxies]
        logits[target] -= scale * margin
        return logits

    return mean_cross_entropy(positives, logits_for)


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


def soft_triple(
    embeddings: Array,
    positives: Mask,
    proxies: Array,
    scale: float = 8.0,
    margin: float = 0.01,
    temperature: float = 0.1,
    regularization: float = 0.2,
) -> float:
    """Cross-entropy of the logits ``scale (S_c - margin [c is the target])``, plus the spread of the centres.

    ``S_c = sum_k w_k s_k`` over the K centres of class c, w = softmax of ``s_k / temperature`` over k.
    Spread: ``regularization * sum_c sum_{k<l} sqrt(2 + 1e-5 - 2 psi_ck.psi_cl) / (C K (K - 1))`` with unit centres psi;
    zero for one centre per class.
    """
    classes, centers = proxies.shape[0], proxies.shape[1]

    def class_similarity(row: int, c: int) -> float:
        similarities = [cosine(embeddings[row], proxies[c, k]) for k in range(centers)]
        normaliser = log_sum_exp([s / temperature for s in similarities])
        return sum(math.exp(s / temperature - normaliser) * s for s in similarities)

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


REFERENCES: dict[str, Callable[..., float]] = {
    "similarity-margin": similarity_margin,
    "similarity-contrastive": similarity_contrastive,
    "binomial": binomial,
    "contrastive": contrastive,
    "margin": margin_loss,
    "triplet": triplet,
    "lifted": lifted,
    "lifted-oh-song": lifted_oh_song,
    "generalized-lifted": generalized_lifted,
    "n-pair": n_pair,
    "angular": angular,
    "histogram": histogram,
    "multi-similarity": multi_similarity,
    "fastap": fastap,
    "ranked-list": ranked_list,
    "hap2s": hap2s,
    "nt-xent": nt_xent,
    "supcon": supcon,
    "circle": circle,
    "smooth-ap": smooth_ap,
    "precision-at-k": precision_at_k,
    "snr": snr,
}

TRIPLET_REFERENCES: dict[str, Callable[..., float]] = {
    "contrastive": contrastive_from_triplets,
    "triplet": triplet_from_triplets,
    "margin": margin_from_triplets,
    "snr": snr_from_triplets,
    "similarity-margin": similarity_margin_from_triplets,
    "binomial": binomial_from_triplets,
    "similarity-contrastive": similarity_contrastive_from_triplets,
    "quadruplet": quadruplet,
}

PROXY_REFERENCES: dict[str, Callable[..., float]] = {
    "proxy-nca": proxy_nca,
    "proxy-anchor": proxy_anchor,
    "normalized-softmax": normalized_softmax,
    "softmax": softmax,
    "cosface": cosface,
    "arcface": arcface,
    "soft-triple": soft_triple,
}
