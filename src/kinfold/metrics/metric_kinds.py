"""The six kinds of metrics: what a metric is computed from."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from torch import Tensor

from kinfold.distributed import World
from kinfold.metrics._ranking.depth import RankDepth
from kinfold.metrics.agreement import Contingency
from kinfold.metrics.class_rates import ClassRates
from kinfold.metrics.open_set_scores import OpenSetScores
from kinfold.metrics.verification_curve import VerificationCurve


@dataclass(frozen=True)
class RetrievalMetric:
    """A metric of the ranks of the relevant items of each query.

    Args:
        depth: The part of the ranking that it needs.
        per_query: Function of (ranks, relevant, class_size) that returns the values of the queries, (B,) float64.
            `ranks` (B, R) is ascending, `relevant` (B,) is the number of relevant items, and `class_size` (B,) the
            size of the class, which includes the query if it is part of the gallery. Ranks deeper than `depth` may be
            missing; they are larger than any real rank.
        counts_singletons: Whether a query without a relevant item counts zero. Otherwise it is left out of the mean.
    """

    depth: RankDepth
    per_query: Callable[[Tensor, Tensor, Tensor], Tensor]
    counts_singletons: bool = False


@dataclass(frozen=True)
class ClusteringMetric:
    """A metric of how well k-means clusters agree with classes.

    Args:
        value: Function of the contingency table of classes and clusters.
        coarse: Whether the clusters are compared with the coarse labels.
    """

    value: Callable[[Contingency], float]
    coarse: bool = False


@dataclass(frozen=True)
class EmbeddingSpaceMetric:
    """A metric of the embedding space itself.

    Args:
        value: Function of (rows, labels, world): the embeddings (N, d), of unit length for the cosine, their labels
            (N,) and the processes that may share the work.
    """

    value: Callable[[Tensor, Tensor, World], float]


@dataclass(frozen=True)
class PairMetric:
    """A metric of all pairs, positive and negative.

    Args:
        value: Function of the verification curve of all pairs.
    """

    value: Callable[[VerificationCurve], float]


@dataclass(frozen=True)
class ClassRateMetric:
    """A metric of the accept rates of every class at several thresholds.

    Args:
        value: Function of the rates of the classes.
    """

    value: Callable[[ClassRates], float]


@dataclass(frozen=True)
class OpenSetMetric:
    """A metric of the nearest item of queries whose class is in the gallery, and of queries whose class is not.

    Args:
        value: Function of the scores of both.
    """

    value: Callable[[OpenSetScores], float]


Metric: TypeAlias = (
    RetrievalMetric | ClusteringMetric | EmbeddingSpaceMetric | PairMetric | ClassRateMetric | OpenSetMetric
)
