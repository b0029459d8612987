"""From embeddings and labels to scores: any set of metrics, each thing they need worked out once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, TypeAlias, TypeVar

import torch
from torch import Tensor

from kinfold.distributed import World
from kinfold.metrics._ranking.approximation import full_products
from kinfold.metrics._ranking.query_gallery import Distance, QueryGallery
from kinfold.metrics._ranking.ranker import Depth, Ranker
from kinfold.metrics._ranking.relevance import Relevance
from kinfold.metrics._ranking.scan import MEMORY
from kinfold.metrics.agreement import contingency
from kinfold.metrics.clustering import k_means
from kinfold.metrics.inputs import Embeddings, prepare
from kinfold.metrics.intervals import bootstrap
from kinfold.metrics.named import DEFAULT, Clusters, Metric, Pairs, Space, find_metric, uses_coarse_labels, uses_gallery
from kinfold.metrics.retrieval import Retrieval
from kinfold.metrics.verification import Curve, pooled_curve
from kinfold.pairs.labels import Labels, encode, reindex

Kind = TypeVar("Kind", Retrieval, Clusters, Space, Pairs)
Progress: TypeAlias = Callable[[str, float], None]
_LEVEL = 0.95  # of intervals


@dataclass(frozen=True)
class Evaluation:
    """What was measured.

    values: every metric by name. per_query: retrieval metrics of each query, (Q,) float64, NaN where a query was left
    out. intervals: (low, high) of retrieval metrics where asked for. left_out: queries without a relevant item.
    classes, query_class: the labels as given, and which of them each query has. curve: all pairs, where a metric needed
    them.
    """

    values: dict[str, float]
    per_query: dict[str, Tensor]
    intervals: dict[str, tuple[float, float]]
    left_out: int
    classes: Sequence[int | str]
    query_class: Tensor = field(repr=False)
    curve: Curve | None = field(default=None, repr=False)

    def per_class(self, name: str) -> dict[int | str, float]:
        """The mean of a retrieval metric over the queries of each class; classes without a counted query are absent."""
        if name not in self.per_query:
            raise ValueError(f"{name!r} has no value for each query; {', '.join(self.per_query) or 'no metric'} has")
        values = self.per_query[name]
        counted = ~values.isnan()
        sums = values.new_zeros(len(self.classes)).index_add_(0, self.query_class[counted], values[counted])
        counts = torch.bincount(self.query_class[counted], minlength=len(self.classes))
        means: dict[int | str, float] = {}
        for label, total, count in zip([*self.classes], sums.tolist(), counts.tolist(), strict=True):
            if count:
                means[label] = total / count
        return means


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
    memory: int = MEMORY,
    ranks: bool | None = None,
    progress: Progress | None = None,
) -> dict[str, float]:
    """Metrics by name; `examine` gives the same with values per query and class, intervals and curves.

    Without a gallery every item is a query against all others, itself left out by index. Default metrics: recall@1, 2,
    4, 8, r-precision and map@r. Queries without a relevant item are left out of retrieval metrics, except map@c and
    map@1000, where they count zero as in the study these come from. k-means takes as many clusters as there are classes
    (or coarse labels), and `seed` draws its start. Within a process group (torchrun) the ranks share the work and all
    get the result; `ranks=False` lets one rank evaluate alone.

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
        memory=memory,
        ranks=ranks,
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
    memory: int = MEMORY,
    ranks: bool | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """`evaluate` in full. `intervals` resamples queries, or whole classes: the queries of a class are alike, so that
    intervals over classes are the wider and, for a claim about unseen classes, the honest ones."""
    if isinstance(metrics, str):
        raise ValueError(f"metrics must be a list of names, got the text {metrics!r}; write [{metrics!r}]")
    wanted = {name: find_metric(name) for name in (DEFAULT if metrics is None else metrics)}
    _check_used(wanted, gallery is not None, coarse_labels is not None, intervals is not None, level)
    comparison, found, codes = prepare(embeddings, labels, gallery, gallery_labels, distance, device)
    place = comparison.gallery.device
    world, tell = World.current(ranks), progress or (lambda stage, share: None)
    query_class, classes = reindex(labels)
    values: dict[str, float] = {}
    with full_products(place):
        per_query = _retrieval(comparison, found, _only(wanted, Retrieval), memory, world, tell)
        values |= {name: _mean(value) for name, value in per_query.items()}
        values |= _clusters(comparison, codes, coarse_labels, _only(wanted, Clusters), seed, world, tell)
        for order, (name, entry) in enumerate(_only(wanted, Space).items()):
            tell("space", order / len(_only(wanted, Space)))
            values[name] = entry.value(comparison.queries, codes, world)
        curve = None
        if _only(wanted, Pairs):
            curve = pooled_curve(comparison, found, world, progress=partial(tell, "pairs"))
            values |= {name: entry.value(curve) for name, entry in _only(wanted, Pairs).items()}
    limits = {} if intervals is None else bootstrap(per_query, query_class.to(place), intervals, level, seed)
    return Evaluation(
        {name: values[name] for name in wanted},
        {name: per_query[name].cpu() for name in per_query},
        limits,
        int((found.counts == 0).sum()),
        classes,
        query_class.cpu(),
        curve,
    )


def _check_used(wanted: dict[str, Metric], gallery: bool, coarse_labels: bool, intervals: bool, level: float) -> None:
    """ValueError for an argument that none of the metrics would use."""
    names = ", ".join(wanted)
    if gallery and wanted and not uses_gallery(wanted):
        raise ValueError(f"no metric of {names} looks at a gallery: leave it out, or add a retrieval metric")
    if coarse_labels and not uses_coarse_labels(wanted):
        raise ValueError(f"no metric of {names} uses coarse_labels: leave them out, or add one such as 'nmi-coarse'")
    if intervals and not _only(wanted, Retrieval):
        raise ValueError(f"intervals are of retrieval metrics, and {names} has none: add one, or leave intervals out")
    if not intervals and level != _LEVEL:
        raise ValueError(f"level={level:g} is that of intervals: give intervals='queries' or 'classes' too")


def _retrieval(
    comparison: QueryGallery,
    relevant: Relevance,
    wanted: dict[str, Retrieval],
    memory: int,
    world: World,
    tell: Progress,
) -> dict[str, Tensor]:
    """Retrieval metrics of every query, (Q,) each; NaN where it is left out."""
    if not wanted:
        return {}
    depth = Depth()
    for entry in wanted.values():
        depth = depth | entry.depth
    queries, counts = world.take_share(relevant.order()), relevant.counts
    empty = {name: 0.0 if entry.counts_singletons else torch.nan for name, entry in wanted.items()}
    found = {name: counts.new_full(counts.shape, empty[name], dtype=torch.float64) for name in wanted}
    done = 0
    for which, ranks in Ranker(comparison, relevant, depth, memory).blocks(queries):
        relevant_items = counts[which]
        size = relevant_items + 1 if comparison.same else relevant_items
        for name, entry in wanted.items():
            found[name][which] = entry.per_query(ranks, relevant_items, size)
        done += which.shape[0]
        tell("ranks", done / queries.shape[0])
    for values in found.values():
        merged = torch.where(counts > 0, values, 0.0)
        world.merge_shares(merged, queries)
        values.copy_(torch.where(counts > 0, merged, values))
    return found


def _clusters(
    comparison: QueryGallery,
    labels: Tensor,
    coarse_labels: Labels | None,
    wanted: dict[str, Clusters],
    seed: int,
    world: World,
    tell: Progress,
) -> dict[str, float]:
    values: dict[str, float] = {}
    for coarse in (False, True):
        asked = {name: entry for name, entry in wanted.items() if entry.coarse == coarse}
        if not asked:
            continue
        target = labels
        if coarse:
            if coarse_labels is None:
                raise ValueError(f"{next(iter(asked))} needs coarse_labels=, one for each embedding")
            (target,) = encode(coarse_labels, device=labels.device)
            if target.shape != labels.shape:
                raise ValueError(f"{labels.shape[0]} embeddings and {target.shape[0]} coarse_labels")
        groups = int(torch.unique(target).shape[0])
        told = partial(tell, "clusters")
        found = k_means(comparison.queries, groups, seed=seed, world=world, progress=told)
        told(1.0)
        table = contingency(target, found.clusters)
        values |= {name: entry.value(table) for name, entry in asked.items()}
    return values


def _only(wanted: dict[str, Metric], kind: type[Kind]) -> dict[str, Kind]:
    return {name: entry for name, entry in wanted.items() if isinstance(entry, kind)}


def _mean(values: Tensor) -> float:
    counted = values[~values.isnan()]
    return float(counted.mean()) if counted.shape[0] else float("nan")
