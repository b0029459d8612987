"""Any set of metrics of embeddings and labels: `evaluate` and `examine`.

What several metrics need (ranks, clusters, the curve of all pairs) is computed once.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal, TypeAlias, TypeVar

import torch
from torch import Tensor

from kinfold.distributed import World
from kinfold.metrics._ranking import tuning
from kinfold.metrics._ranking.depth import RankDepth
from kinfold.metrics._ranking.fast_products import use_full_precision
from kinfold.metrics._ranking.query_gallery import Distance, QueryGallery
from kinfold.metrics._ranking.ranker import Ranker
from kinfold.metrics._ranking.relevance import Relevance
from kinfold.metrics.agreement import build_contingency
from kinfold.metrics.class_rates import compute_class_rates
from kinfold.metrics.clustering import k_means
from kinfold.metrics.evaluation_result import Evaluation
from kinfold.metrics.inputs import Embeddings, prepare_inputs
from kinfold.metrics.intervals import bootstrap
from kinfold.metrics.lookup import DEFAULT_METRICS, find_metric, uses_coarse_labels, uses_gallery
from kinfold.metrics.metric_kinds import (
    ClassRateMetric,
    ClusteringMetric,
    EmbeddingSpaceMetric,
    Metric,
    OpenSetMetric,
    PairMetric,
    RetrievalMetric,
)
from kinfold.metrics.open_set_scores import compute_open_set_scores
from kinfold.metrics.retrieval import recall
from kinfold.metrics.verification_curve import compute_curve
from kinfold.pairs.labels import Labels, encode, reindex

Kind = TypeVar(
    "Kind", RetrievalMetric, ClusteringMetric, EmbeddingSpaceMetric, PairMetric, ClassRateMetric, OpenSetMetric
)
Progress: TypeAlias = Callable[[str, float], None]
_LEVEL = 0.95


def evaluate(
    embeddings: Embeddings,
    labels: Labels,
    gallery: Embeddings | None = None,
    gallery_labels: Labels | None = None,
    metrics: Sequence[str] | None = None,
    distance: Distance = "cosine",
    device: torch.device | str | None = None,
    *,
    coarse_labels: Labels | None = None,
    seed: int = 0,
    memory_limit: int = tuning.MEMORY_LIMIT,
    world: World | None = None,
    progress: Progress | None = None,
) -> dict[str, float]:
    """Compute metrics of embeddings. `examine` returns the same with values per query and class, intervals and curves.

    Queries without a relevant item are left out of retrieval metrics, except map@c and map@1000, where they count zero
    as in the study that these come from. k-means uses as many clusters as there are classes (or coarse labels).

    Args:
        embeddings: (Q, d), a tensor, array, memory-mapped file or nested list.
        labels: One label for each row, integers or strings.
        gallery: (N, d). Without it every item is a query against all others, and leaves itself out by index.
        gallery_labels: One label for each gallery row.
        metrics: Names of metrics; `kinfold.list("metrics")` shows all. None: recall@1, 2, 4, 8, r-precision and map@r.
        distance: "cosine", "dot", "euclidean" or "hyperbolic", see `kinfold.pairs.distances`.
        device: Where to compute; None computes where the rows are.
        coarse_labels: Labels of super-classes, for metrics such as "nmi-coarse".
        seed: The seed of the start of k-means.
        memory_limit: Bytes of the block of products that is held at a time. It does not change the result.
        world: The processes that share the work, each of which gets the result. None takes the running process group
            (torchrun), `World()` this process alone.
        progress: Called with the name of the stage and the share of it that is finished, from 0 to 1.

    Returns:
        The value of each metric by name, NaN where it is undefined.

    Raises:
        ValueError: An argument is not valid or would not be used, or a row is not finite.

    Examples:
        >>> x = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.8, 0.7]])
        >>> evaluate(x, [0, 0, 1, 1], metrics=["recall@1", "map@r"])
        {'recall@1': 0.75, 'map@r': 0.75}
    """
    return examine(
        embeddings,
        labels,
        gallery,
        gallery_labels,
        metrics,
        distance,
        device,
        coarse_labels=coarse_labels,
        seed=seed,
        memory_limit=memory_limit,
        world=world,
        progress=progress,
    ).values


def examine(
    embeddings: Embeddings,
    labels: Labels,
    gallery: Embeddings | None = None,
    gallery_labels: Labels | None = None,
    metrics: Sequence[str] | None = None,
    distance: Distance = "cosine",
    device: torch.device | str | None = None,
    *,
    coarse_labels: Labels | None = None,
    intervals: Literal["queries", "classes"] | None = None,
    level: float = _LEVEL,
    seed: int = 0,
    memory_limit: int = tuning.MEMORY_LIMIT,
    world: World | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Compute metrics as `evaluate` does, with values per query and class, bootstrap intervals and curves.

    Args:
        embeddings, labels, gallery, gallery_labels, metrics, distance, device: See `evaluate`.
        coarse_labels, memory_limit, world, progress: See `evaluate`.
        intervals: "queries" resamples queries, "classes" whole classes. The queries of a class resemble each other, so
            that intervals over classes are wider. They are the ones for a claim about unseen classes.
        level: The level of the intervals.
        seed: The seed of the start of k-means, and of the draws of the intervals.

    Returns:
        The metrics with their details.

    Raises:
        ValueError: An argument is not valid or would not be used, or a row is not finite.

    Examples:
        >>> x = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.8, 0.7]])
        >>> examine(x, ["a", "a", "b", "b"], metrics=["recall@1", "map@r"])
        Evaluation(recall@1=0.7500, map@r=0.7500; 4 queries, 2 classes)
        >>> examine(x, ["a", "a", "b", "b"], metrics=["recall@1"]).per_class("recall@1")
        {'a': 1.0, 'b': 0.5}
    """
    if isinstance(metrics, str):
        raise ValueError(f"metrics must be a list of names, got the text {metrics!r}; write [{metrics!r}]")
    selected = {name: find_metric(name) for name in (DEFAULT_METRICS if metrics is None else metrics)}
    _check_used(selected, gallery is not None, coarse_labels is not None, intervals is not None, level)
    query_gallery, relevance, codes = prepare_inputs(embeddings, labels, gallery, gallery_labels, distance, device)
    device = query_gallery.gallery.device
    world, report = world or World.current(), progress or (lambda stage, share: None)
    query_class, classes = reindex(labels)
    values: dict[str, float] = {}
    with use_full_precision(device):
        retrieval = _select(selected, RetrievalMetric)
        per_query = _compute_retrieval(query_gallery, relevance, retrieval, memory_limit, world, report)
        values |= {name: _mean(value) for name, value in per_query.items()}
        clustering = _select(selected, ClusteringMetric)
        values |= _compute_clustering(query_gallery, codes, coarse_labels, clustering, seed, world, report)
        space = _select(selected, EmbeddingSpaceMetric)
        for number, (name, space_metric) in enumerate(space.items()):
            report("space", number / len(space))
            values[name] = space_metric.value(query_gallery.vectors, codes, world)
        curve = None
        pairs, by_class = _select(selected, PairMetric), _select(selected, ClassRateMetric)
        if pairs or by_class:
            curve = compute_curve(query_gallery, relevance, world, progress=partial(report, "pairs"))
            values |= {name: pair_metric.value(curve) for name, pair_metric in pairs.items()}
        if curve is not None and by_class:
            rates = compute_class_rates(query_gallery, relevance, curve, world, progress=partial(report, "classes"))
            values |= {name: class_metric.value(rates) for name, class_metric in by_class.items()}
        if open_set := _select(selected, OpenSetMetric):
            nearest = {"recall@1": recall(1)}
            is_correct = _compute_retrieval(query_gallery, relevance, nearest, memory_limit, world, report)["recall@1"]
            scores = compute_open_set_scores(query_gallery, relevance, is_correct, world, partial(report, "open set"))
            values |= {name: open_metric.value(scores) for name, open_metric in open_set.items()}
    limits = {} if intervals is None else bootstrap(per_query, query_class.to(device), intervals, level, seed)
    return Evaluation(
        {name: values[name] for name in selected},
        {name: per_query[name].cpu() for name in per_query},
        limits,
        int((relevance.counts == 0).sum()),
        classes,
        query_class.cpu(),
        curve,
        level,
    )


def _check_used(selected: dict[str, Metric], gallery: bool, coarse_labels: bool, intervals: bool, level: float) -> None:
    """Raise a ValueError for an argument that none of the metrics would use."""
    names = ", ".join(selected)
    if gallery and selected and not uses_gallery(selected):
        raise ValueError(f"no metric of {names} looks at a gallery: leave it out, or add a retrieval metric")
    if coarse_labels and not uses_coarse_labels(selected):
        raise ValueError(f"no metric of {names} uses coarse_labels: leave them out, or add one such as 'nmi-coarse'")
    if intervals and not _select(selected, RetrievalMetric):
        raise ValueError(f"intervals are of retrieval metrics, and {names} has none: add one, or leave intervals out")
    if not intervals and level != _LEVEL:
        raise ValueError(f"level={level:g} is that of intervals: give intervals='queries' or 'classes' too")


def _compute_retrieval(
    query_gallery: QueryGallery,
    relevance: Relevance,
    metrics: dict[str, RetrievalMetric],
    memory_limit: int,
    world: World,
    report: Progress,
) -> dict[str, Tensor]:
    """Return the values of retrieval metrics for every query, (Q,) each; NaN for queries that are left out."""
    if not metrics:
        return {}
    depth = RankDepth()
    for metric in metrics.values():
        depth = depth | metric.depth
    queries, counts = world.take_share(relevance.order_queries()), relevance.counts
    empty = {name: 0.0 if metric.counts_singletons else torch.nan for name, metric in metrics.items()}
    per_query = {name: counts.new_full(counts.shape, empty[name], dtype=torch.float64) for name in metrics}
    finished = 0
    for block, ranks in Ranker(query_gallery, relevance, depth, memory_limit).rank_blocks(queries):
        relevant_count = counts[block]
        class_size = relevant_count + 1 if query_gallery.is_same_set else relevant_count
        for name, metric in metrics.items():
            per_query[name][block] = metric.per_query(ranks, relevant_count, class_size)
        finished += block.shape[0]
        report("ranks", finished / queries.shape[0])
    for values in per_query.values():
        merged = torch.where(counts > 0, values, 0.0)
        world.merge_shares(merged, queries)
        values.copy_(torch.where(counts > 0, merged, values))
    return per_query


def _compute_clustering(
    query_gallery: QueryGallery,
    labels: Tensor,
    coarse_labels: Labels | None,
    metrics: dict[str, ClusteringMetric],
    seed: int,
    world: World,
    report: Progress,
) -> dict[str, float]:
    values: dict[str, float] = {}
    for coarse in (False, True):
        some_metrics = {name: metric for name, metric in metrics.items() if metric.coarse == coarse}
        if not some_metrics:
            continue
        target = labels
        if coarse:
            if coarse_labels is None:
                raise ValueError(f"{next(iter(some_metrics))} needs coarse_labels=, one for each embedding")
            (target,) = encode(coarse_labels, device=labels.device)
            if target.shape != labels.shape:
                raise ValueError(f"{labels.shape[0]} embeddings and {target.shape[0]} coarse_labels")
        num_clusters = int(torch.unique(target).shape[0])
        report_share = partial(report, "clusters")
        clustering = k_means(query_gallery.vectors, num_clusters, seed=seed, world=world, progress=report_share)
        report_share(1.0)
        table = build_contingency(target, clustering.clusters)
        values |= {name: metric.value(table) for name, metric in some_metrics.items()}
    return values


def _select(metrics: dict[str, Metric], kind: type[Kind]) -> dict[str, Kind]:
    return {name: metric for name, metric in metrics.items() if isinstance(metric, kind)}


def _mean(values: Tensor) -> float:
    counted = values[~values.isnan()]
    return float(counted.mean()) if counted.shape[0] else float("nan")
