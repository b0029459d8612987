"""Choose a threshold for classes that were never seen: a guarantee where the classes allow one, else an estimate."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from kinfold.calibration.class_pairs import ClassPairTable, build_table
from kinfold.calibration.drawing import ClassItems
from kinfold.calibration.identification import estimate_thresholds
from kinfold.calibration.probability import ProbabilityMap, Reliability, fit_probability, measure_reliability
from kinfold.calibration.result import Calibration
from kinfold.calibration.risk_control import control_rate, smallest_certifiable_rate
from kinfold.metrics._ranking.rows import check_rows, normalize_rows
from kinfold.metrics.inputs import Embeddings, to_rows
from kinfold.pairs.labels import Labels, encode
from kinfold.seeding import derive_generator

MIN_CLASSES = 10
MAX_TABLE_CLASSES = 1000  # of the table of class pairs; of more, some are drawn
_PAIRS = 50_000  # drawn pairs of each sign for probabilities
_FOLDS = 5
_LEVEL = 0.95
_STREAM = 24  # keeps these draws apart from those of training with the same seed


def calibrate(
    embeddings: Embeddings,
    labels: Labels,
    far: float = 1e-2,
    *,
    confidence: float = 0.9,
    new_classes: int | None = None,
    gallery_sizes: Sequence[int] = (10, 100, 1000, 10000),
    shots: int = 5,
    resamples: int = 400,
    splits: int = 100,
    may_guarantee: bool = True,
    origin: dict[str, Any] | None = None,
    seed: int = 0,
) -> Calibration:
    """Choose a similarity threshold for "same class or not", for classes never seen.

    The unit is the class. The n classes are divided at random into n // 2 pairs. If two new classes are drawn as these
    were, the pairs and the new pair are exchangeable, and conformal risk control certifies a mean false-accept rate
    down to 1 / (n // 2 + 1). Below that rate no guarantee is given: the threshold is the first at which an upper limit
    of the rate among new classes, from the spread over the classes at hand, is at most `far`. The same calibration on
    halves of the classes measures how well that works.

    Args:
        embeddings: (N, d), of classes that were not used for training.
        labels: One label for each row.
        far: The false-accept rate.
        confidence: For an estimate: the aimed share of calibrations that keep the rate.
        new_classes: For an estimate: the number of new classes whose rate is to be kept; None takes as many as are
            calibrated on. Among few new classes the rate varies more, so that the threshold is higher.
        gallery_sizes: Numbers of classes for which thresholds of identification are estimated.
        shots: Items of a class in such a gallery.
        resamples: Draws of classes with replacement, for intervals.
        splits: Random halves on which an estimate is measured.
        may_guarantee: False gives an estimate in any case, for classes on which the model was selected.
        origin: Where the classes come from, kept with the result.
        seed: The seed of all draws.

    Returns:
        The threshold with what is known about it.

    Raises:
        ValueError: There are fewer than ten classes, or an argument is not valid.

    Examples:
        >>> generator = torch.Generator().manual_seed(0)
        >>> centers = torch.randn(60, 8, generator=generator)
        >>> rows = centers.repeat_interleave(6, dim=0) + 0.3 * torch.randn(360, 8, generator=generator)
        >>> result = calibrate(rows, torch.arange(360) // 6, far=0.05)
        >>> result.kind, round(result.smallest_far, 4), result.measured_far < 0.05
        ('guarantee', 0.0323, True)
        >>> calibrate(rows, torch.arange(360) // 6, far=0.01).kind
        'estimate'
    """
    check_share("far", far)
    check_share("confidence", confidence)
    items = prepare_items(embeddings, labels)
    if new_classes is not None and new_classes < 2:
        raise ValueError(f"new_classes must be at least 2, got {new_classes}")
    if shots < 1 or any(size < 1 for size in gallery_sizes):
        raise ValueError("shots and gallery_sizes must be at least 1")
    generator = derive_generator(seed, _STREAM)
    smallest = smallest_certifiable_rate(items.classes // 2)
    certified = may_guarantee and far >= smallest - 1e-12
    table = _build_table(items, far, generator)
    coverage = None
    if certified:
        scores, units = items.match_classes(generator)
        threshold = control_rate(scores, units, far)
    else:
        threshold = estimate_threshold(table, far, confidence, new_classes)
        coverage = measure_coverage(table, far, confidence, splits, generator)
    rates = table.rates(_draw_counts(table.shares.shape[1], resamples, generator))
    probability, reliability = _fit_probabilities(items, generator)
    accepted = _measure_accepted(items, torch.cat([table.thresholds, torch.tensor([threshold], dtype=torch.float64)]))
    all_rates = table.rates(torch.ones(table.shares.shape[1], 1))
    curve = {"thresholds": table.thresholds, "far": all_rates[:, 0], "tar": accepted.mean(dim=0)[:-1]}
    return Calibration(
        far=far,
        threshold=threshold,
        kind="guarantee" if certified else "estimate",
        smallest_far=smallest,
        classes=items.classes,
        items=len(items.rows),
        confidence=confidence,
        measured_far=float(table.rate_at(threshold, all_rates)),
        far_interval=_interval(table.rate_at(threshold, rates)),
        tar=float(accepted[:, -1].mean()),
        tar_interval=_resample_mean(accepted[:, -1], resamples, generator),
        coverage=coverage,
        probability=probability,
        reliability=reliability,
        curve={name: values.tolist() for name, values in curve.items()},
        identification=estimate_thresholds(items, far, gallery_sizes, shots, generator),
        origin=origin or {},
    )


def check_share(name: str, value: float) -> None:
    """Raise a ValueError unless a rate or a confidence lies between 0 and 1."""
    if not 0.0 < value < 1.0:
        raise ValueError(f"{name} must be above 0 and below 1, got {value}")


def prepare_items(embeddings: Embeddings, labels: Labels) -> ClassItems:
    """Check embeddings and labels, and order unit rows by class.

    Raises:
        ValueError: Lengths differ, a row is not finite, or there are fewer than ten classes.
    """
    rows = to_rows(embeddings).float().cpu()
    check_rows(rows, "embeddings")
    (codes,) = encode(labels)
    if len(codes) != len(rows):
        raise ValueError(f"{len(rows):,} embeddings and {len(codes):,} labels: give one for each")
    items = ClassItems.from_labels(normalize_rows(rows), codes.cpu())
    if int((items.sizes > 1).sum()) < 2:
        raise ValueError("no class has two items, or one alone, so that there are too few positive pairs: add items")
    if items.classes < MIN_CLASSES:
        raise ValueError(
            f"{items.classes} classes are too few to calibrate on: the class is the unit, and {MIN_CLASSES} are the "
            "least; use a split with more classes"
        )
    return items


def estimate_threshold(table: ClassPairTable, far: float, confidence: float, new_classes: int | None = None) -> float:
    """Return the first threshold at which the upper limit of the rate among new classes is at most `far`.

    Args:
        table: Accepted shares of pairs of classes.
        far: The false-accept rate.
        confidence: The level of the limit.
        new_classes: The number of new classes; None: as many as the table has.
    """
    return float(table.find_threshold(table.limit_rates(confidence, new_classes), far))


def measure_coverage(
    table: ClassPairTable, far: float, confidence: float, splits: int, generator: torch.Generator
) -> dict[str, float]:
    """Estimate thresholds on random halves of the classes, and return the rates on the other halves."""
    count = table.shares.shape[1]
    realized = []
    for _ in range(splits):
        order = torch.randperm(count, generator=generator)
        rest = table.take(order[count // 2 :])
        threshold = estimate_threshold(table.take(order[: count // 2]), far, confidence, rest.shares.shape[1])
        realized.append(float(rest.rate_at(threshold, rest.rates(torch.ones(rest.shares.shape[1], 1)))))
    rates = torch.tensor(realized)
    return {"splits": splits, "mean_far": float(rates.mean()), "exceeded": float((rates > far).float().mean())}


def _build_table(items: ClassItems, far: float, generator: torch.Generator) -> ClassPairTable:
    if items.classes > MAX_TABLE_CLASSES:
        items = items.take(torch.randperm(items.classes, generator=generator)[:MAX_TABLE_CLASSES])
    return build_table(items.rows, items.labels, far, generator)


def _draw_counts(classes: int, resamples: int, generator: torch.Generator) -> Tensor:
    """Return how often each class is drawn in each resample, (n, R)."""
    drawn = torch.randint(classes, (classes, resamples), generator=generator)
    return torch.zeros(classes, resamples).scatter_add_(0, drawn, torch.ones(classes, resamples))


def _interval(values: Tensor) -> tuple[float, float]:
    tail = (1 - _LEVEL) / 2
    low, high = values.double().quantile(torch.tensor([tail, 1 - tail], dtype=torch.float64)).tolist()
    return low, high


def _measure_accepted(items: ClassItems, thresholds: Tensor) -> Tensor:
    """Return the share of accepted positive pairs of each class at thresholds (L,), ascending, (C, L) float64."""
    shares = []
    for number in (items.sizes > 1).nonzero().squeeze(1).tolist():
        rows = items.members(number)[:200]
        upper = torch.ones(len(rows), len(rows), dtype=torch.bool).triu(diagonal=1)
        scores = (rows @ rows.T)[upper].double().sort().values
        shares.append(1.0 - torch.searchsorted(scores, thresholds).double() / len(scores))
    return torch.stack(shares)


def _resample_mean(values: Tensor, resamples: int, generator: torch.Generator) -> tuple[float, float]:
    """Return the interval over classes of the mean of values (C,)."""
    counts = _draw_counts(len(values), resamples, generator).double()
    return _interval((counts * values[:, None]).sum(dim=0) / len(values))


def _fit_probabilities(items: ClassItems, generator: torch.Generator) -> tuple[ProbabilityMap, Reliability]:
    """Return the map of all classes, and how reliable maps are for classes that they were not fitted on."""
    predicted, observed = [], []
    folds = torch.arange(items.classes)[torch.randperm(items.classes, generator=generator)] % _FOLDS
    for fold in range(_FOLDS):
        held_out = items.take((folds == fold).nonzero().squeeze(1))
        rest = items.take((folds != fold).nonzero().squeeze(1))
        if not (held_out.sizes > 1).any() or not (rest.sizes > 1).any():
            continue
        fitted = _fit(rest, _PAIRS // 4, generator)
        positive = held_out.draw_positive(_PAIRS // 10, generator)
        negative = held_out.draw_negative(_PAIRS // 10, generator)
        predicted.append(torch.from_numpy(fitted(torch.cat([positive, negative]).numpy())))
        observed.append(torch.cat([torch.ones(len(positive)), torch.zeros(len(negative))]))
    probability, truth = torch.cat(predicted).numpy(), torch.cat(observed).double().numpy()
    return _fit(items, _PAIRS, generator), measure_reliability(probability, truth, truth * 0 + 1.0)


def _fit(items: ClassItems, pairs: int, generator: torch.Generator) -> ProbabilityMap:
    positive, negative = items.draw_positive(pairs, generator), items.draw_negative(pairs, generator)
    is_positive = torch.cat([torch.ones(pairs, dtype=torch.bool), torch.zeros(pairs, dtype=torch.bool)])
    return fit_probability(torch.cat([positive, negative]), is_positive, torch.ones(2 * pairs))
