"""Metrics by name.

A name is a registered one, with a number in place of its last letter where it has a parameter: `recall@10` is
`recall@k` with k = 10.
"""

import re
from collections.abc import Iterable

from kinfold import registry
from kinfold.metrics.metric_kinds import ClusteringMetric, EmbeddingSpaceMetric, Metric

DEFAULT_METRICS = ("recall@1", "recall@2", "recall@4", "recall@8", "r-precision", "map@r")
_PARAMETER = re.compile(r"(?<=[@=])[kx]$")  # k is an integer, x a number


def find_metric(name: str) -> Metric:
    """Return the metric of a name.

    Args:
        name: A registered name, with a number for its parameter.

    Raises:
        ValueError: The name is unknown, or its number is not valid; the message suggests the nearest name.

    Examples:
        >>> find_metric("precision@10").depth.fixed
        10
    """
    if not isinstance(name, str):
        raise ValueError(
            f"metrics are given by their names, got {type(name).__name__}: add a metric of your own with "
            "kinfold.register('metrics', NAME) and pass that name"
        )
    registered = registry.names("metrics")
    if name in registered and not _PARAMETER.search(name):
        metric: Metric = registry.resolve("metrics", name)()
        return metric
    for pattern in registered:
        parameter = _PARAMETER.search(pattern)
        if parameter is None:
            continue
        kind = float if parameter[0] == "x" else int
        match = re.fullmatch(re.escape(pattern[: parameter.start()]) + r"([0-9.]+(?:e-?[0-9]+)?)", name)
        if match:
            return _create_with_number(pattern, name, match[1], kind)
    raise ValueError(f"unknown metric {name!r}{_suggest(name, registered)}; kinfold.list('metrics') shows all")


def uses_gallery(names: Iterable[str]) -> bool:
    """Whether one of the metrics uses a gallery: metrics of clusters and of the embedding space do not."""
    return any(not isinstance(find_metric(name), ClusteringMetric | EmbeddingSpaceMetric) for name in names)


def uses_coarse_labels(names: Iterable[str]) -> bool:
    """Whether one of the metrics needs coarse labels."""
    metrics = [find_metric(name) for name in names]
    return any(isinstance(metric, ClusteringMetric) and metric.coarse for metric in metrics)


def _create_with_number(pattern: str, name: str, text: str, kind: type) -> Metric:
    try:
        number = kind(text)
    except ValueError:
        raise ValueError(f"{name!r}: {text!r} is not {'an integer' if kind is int else 'a number'}") from None
    if kind is int and number < 1:
        raise ValueError(f"{name!r}: the number must be at least 1")
    metric: Metric = registry.resolve("metrics", pattern)(number)
    return metric


def _suggest(name: str, registered: list[str]) -> str:
    number = re.search(r"[0-9][0-9.e-]*$", name)
    examples = [_PARAMETER.sub(number[0] if number else "1", entry) for entry in registered]
    return registry.suggest(name, examples)
