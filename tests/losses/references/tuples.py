"""Losses of listed triplets (a, p, n) and quadruplets: a is a row of the anchors, the others of the references."""

from collections.abc import Sequence

from tests.losses.references.arithmetic import (
    Array,
    Mask,
    Quadruplet,
    Triplet,
    all_triplets,
    beta_of,
    cosine,
    distance,
    distance_or_square,
    hinge,
    log_one_plus_sum_exp,
    marked,
    mean,
    noise_to_signal,
    unit,
)
from tests.losses.references.catalog import reference, triplet_reference
from tests.losses.references.pairs import (
    binomial_value,
    contrastive_value,
    margin_terms,
    similarity_contrastive_value,
    similarity_margin_value,
    threshold_consistent_value,
)


@reference(
    "triplet",
    {"squared": False},
    {"margin": 0.7, "average": "active"},
    {"squared": False, "average": "active"},
    {"margin": 0.6, "swap": True},
    {"squared": False, "swap": True, "average": "active"},
)
def triplet(
    anchors: Array,
    references: Array,
    positives: Mask,
    negatives: Mask,
    margin: float = 0.2,
    squared: bool = True,
    average: str = "all",
    swap: bool = False,
) -> float:
    """See `triplet_from_triplets`; all triplets of the relation."""
    triplets = all_triplets(positives, negatives)
    return triplet_from_triplets(anchors, references, triplets, margin, squared, average, swap)


@reference("soft-margin-triplet", {"squared": True}, {"swap": True}, {"squared": True, "swap": True})
def soft_margin_triplet(
    anchors: Array,
    references: Array,
    positives: Mask,
    negatives: Mask,
    squared: bool = False,
    swap: bool = False,
) -> float:
    """See `soft_margin_from_triplets`; all triplets of the relation."""
    return soft_margin_from_triplets(anchors, references, all_triplets(positives, negatives), squared, swap)


@triplet_reference("soft-margin-triplet")
def soft_margin_from_triplets(
    anchors: Array, references: Array, triplets: Sequence[Triplet], squared: bool = False, swap: bool = False
) -> float:
    """Mean of ``log(1 + e^{D(a,p) - D})``, D = D(a,n), or with ``swap`` the smaller one of D(a,n) and D(p,n)."""
    return mean(
        [
            log_one_plus_sum_exp([near - far])
            for near, far in triplet_sides(anchors, references, triplets, squared, swap)
        ]
    )


def triplet_sides(
    anchors: Array, references: Array, triplets: Sequence[Triplet], squared: bool, swap: bool
) -> list[tuple[float, float]]:
    """``D(a,p)`` and ``D(a,n)`` of each triplet; with ``swap`` the smaller one of ``D(a,n)`` and ``D(p,n)``."""
    sides = []
    for a, p, n in triplets:
        far = distance_or_square(anchors[a], references[n], squared)
        if swap:
            far = min(far, distance_or_square(references[p], references[n], squared))
        sides.append((distance_or_square(anchors[a], references[p], squared), far))
    return sides


@reference("snr", {"margin": 1.5, "regularization": 0.0})
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


def triplet_cosines(anchors: Array, references: Array, triplets: Sequence[Triplet]) -> tuple[list[float], list[float]]:
    """Cosines of all (a, p) and of all (a, n)."""
    positive_values = [cosine(anchors[a], references[p]) for a, p, _ in triplets]
    negative_values = [cosine(anchors[a], references[n]) for a, _, n in triplets]
    return positive_values, negative_values


@triplet_reference("similarity-margin")
def similarity_margin_from_triplets(
    anchors: Array, references: Array, triplets: Sequence[Triplet], margin: float = 0.2, threshold: float = 0.5
) -> float:
    """See `similarity_margin_value`; two pairs per triplet."""
    positive_values, negative_values = triplet_cosines(anchors, references, triplets)
    return similarity_margin_value(positive_values, negative_values, margin, threshold)


@triplet_reference("similarity-contrastive")
def similarity_contrastive_from_triplets(
    anchors: Array,
    references: Array,
    triplets: Sequence[Triplet],
    threshold: float = 0.5,
    variant: str = "standard",
) -> float:
    """See `similarity_contrastive_value`; two pairs per triplet."""
    positive_values, negative_values = triplet_cosines(anchors, references, triplets)
    return similarity_contrastive_value(positive_values, negative_values, threshold, variant)


@triplet_reference("binomial")
def binomial_from_triplets(
    anchors: Array,
    references: Array,
    triplets: Sequence[Triplet],
    positive_scale: float = 2.0,
    negative_scale: float = 40.0,
    threshold: float = 0.5,
) -> float:
    """See `binomial_value`; two pairs per triplet."""
    positive_values, negative_values = triplet_cosines(anchors, references, triplets)
    return binomial_value(positive_values, negative_values, positive_scale, negative_scale, threshold)


@triplet_reference("contrastive")
def contrastive_from_triplets(
    anchors: Array,
    references: Array,
    triplets: Sequence[Triplet],
    margin: float = 1.0,
    positive_margin: float = 0.0,
    squared: bool = False,
    average: str = "all",
) -> float:
    """See `contrastive_value`; two pairs per triplet."""
    positive_values = [distance(anchors[a], references[p]) for a, p, _ in triplets]
    negative_values = [distance(anchors[a], references[n]) for a, _, n in triplets]
    return contrastive_value(positive_values, negative_values, margin, positive_margin, squared, average)


@triplet_reference("triplet")
def triplet_from_triplets(
    anchors: Array,
    references: Array,
    triplets: Sequence[Triplet],
    margin: float = 0.2,
    squared: bool = True,
    average: str = "all",
    swap: bool = False,
) -> float:
    """``sum_t h / count`` with ``h = [D(a,p) - D(a,n) + margin]+``, D = d^2 if ``squared``, otherwise d.

    The count is the number of triplets ("all") or ``max(1, number of triplets with h > 0)`` ("active").
    """
    sides = triplet_sides(anchors, references, triplets, squared, swap)
    hinges = [hinge(near - far + margin) for near, far in sides]
    if average == "all":
        return mean(hinges)
    if average == "active":
        return sum(hinges) / max(1, sum(1 for h in hinges if h > 0.0))
    raise ValueError(f"unknown average: {average}")


@triplet_reference("margin")
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


@triplet_reference("snr")
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


@triplet_reference("quadruplet")
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


@triplet_reference("threshold-consistent-margin")
def threshold_consistent_from_triplets(
    anchors: Array,
    references: Array,
    triplets: Sequence[Triplet],
    positive_threshold: float = 0.9,
    negative_threshold: float = 0.5,
    positive_weight: float = 1.0,
    negative_weight: float = 1.0,
) -> float:
    """See `threshold_consistent_value`; two pairs per triplet."""
    sides = triplet_cosines(anchors, references, triplets)
    return threshold_consistent_value(*sides, positive_threshold, negative_threshold, positive_weight, negative_weight)


@triplet_reference("sigmoid")
def sigmoid_from_triplets(
    anchors: Array,
    references: Array,
    triplets: Sequence[Triplet],
    scale: float = 10.0,
    bias: float = -10.0,
    learn: bool = True,
) -> float:
    """Mean over triplets of ``log(1 + e^{-(scale s_ap + bias)}) + log(1 + e^{scale s_an + bias})``."""
    near, far = triplet_cosines(anchors, references, triplets)
    terms = [log_one_plus_sum_exp([-scale * s - bias]) for s in near]
    terms += [log_one_plus_sum_exp([scale * s + bias]) for s in far]
    return sum(terms) / max(1, len(near))


@reference("hierarchical-triplet", {"start_margin": 0.7})
def hierarchical_triplet(
    anchors: Array, references: Array, positives: Mask, negatives: Mask, start_margin: float = 0.2
) -> float:
    """Before its tree is known: the triplet loss on squared distances. See test_class_hierarchy.py for the margins."""
    return triplet_from_triplets(anchors, references, all_triplets(positives, negatives), start_margin, True, "all")


def global_value(near: list[float], far: list[float], margin: float, mean_weight: float) -> float:
    """``var+ + var- + mean_weight [mean+ - mean- + margin]+`` of two lists; zero if one is empty."""
    if not near or not far:
        return 0.0
    spread = sum(mean([(value - mean(values)) ** 2 for value in values]) for values in (near, far))
    return spread + mean_weight * hinge(mean(near) - mean(far) + margin)


@reference("global-triplet", {"margin": 0.2, "global_weight": 0.5, "global_margin": 0.1, "mean_weight": 2.0})
def global_triplet(
    anchors: Array,
    references: Array,
    positives: Mask,
    negatives: Mask,
    margin: float = 0.05,
    global_weight: float = 1.0,
    global_margin: float = 0.4,
    mean_weight: float = 0.8,
) -> float:
    """``mean [D(a,p) - D(a,n) + margin]+ + global_weight * global``, D = d^2 / 4; all triplets and all pairs."""
    hinges = [
        hinge((distance(anchors[a], references[p]) ** 2 - distance(anchors[a], references[n]) ** 2) / 4.0 + margin)
        for a, p, n in all_triplets(positives, negatives)
    ]
    near, far = (
        [distance(anchors[a], references[r]) ** 2 / 4.0 for a in range(len(anchors)) for r in marked(mask, a)]
        for mask in (positives, negatives)
    )
    return mean(hinges) + global_weight * global_value(near, far, global_margin, mean_weight)


@triplet_reference("global-triplet")
def global_triplet_from_triplets(
    anchors: Array,
    references: Array,
    triplets: Sequence[Triplet],
    margin: float = 0.05,
    global_weight: float = 1.0,
    global_margin: float = 0.4,
    mean_weight: float = 0.8,
) -> float:
    """See `global_triplet`; distances of the triplets alone."""
    near = [distance(anchors[a], references[p]) ** 2 / 4.0 for a, p, _ in triplets]
    far = [distance(anchors[a], references[n]) ** 2 / 4.0 for a, _, n in triplets]
    hinges = [hinge(close - apart + margin) for close, apart in zip(near, far, strict=True)]
    return mean(hinges) + global_weight * global_value(near, far, global_margin, mean_weight)
