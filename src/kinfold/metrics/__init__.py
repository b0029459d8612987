"""Exact neighbors, ranks, metrics and curves of embeddings, at any size.

| module | public functions and classes |
|---|---|
| `evaluation`, `evaluation_result` | `evaluate`, `examine`, `Evaluation` |
| `graded` | `evaluate_graded`, for degrees of relevance instead of labels |
| `nearest_neighbors` | `neighbors` |
| `verification`, `verification_curve` | `verify`, `VerificationCurve`, `query_curves`, `QueryCurves` |
| `clustering` | `k_means`, `Clustering` |
| `embedding_space` | `spectrum`, `class_spectrum` |
| `metric_kinds` | for new metrics: `RetrievalMetric`, `ClusteringMetric`, `EmbeddingSpaceMetric`, `PairMetric` |
| | and `ClassRateMetric`, `OpenSetMetric`, which get `ClassRates`, `OpenSetScores` |
| `class_rates`, `open_set_scores` | `ClassRates`, `OpenSetScores` |

`retrieval` and `registered` define the registered metrics, `lookup` finds them by name. `agreement`, `intervals` and
`inputs` are their helpers. The ranking engine is in `_ranking`; its docstring explains the algorithm.
"""

from kinfold.metrics._ranking.depth import RankDepth
from kinfold.metrics._ranking.query_gallery import Distance
from kinfold.metrics.class_rates import ClassRates
from kinfold.metrics.clustering import Clustering, k_means
from kinfold.metrics.embedding_space import class_spectrum, spectrum
from kinfold.metrics.evaluation import evaluate, examine
from kinfold.metrics.evaluation_result import Evaluation
from kinfold.metrics.graded import evaluate_graded
from kinfold.metrics.metric_kinds import (
    ClassRateMetric,
    ClusteringMetric,
    EmbeddingSpaceMetric,
    OpenSetMetric,
    PairMetric,
    RetrievalMetric,
)
from kinfold.metrics.nearest_neighbors import neighbors
from kinfold.metrics.open_set_scores import OpenSetScores
from kinfold.metrics.verification import QueryCurves, query_curves, verify
from kinfold.metrics.verification_curve import VerificationCurve

__all__ = [
    "ClassRateMetric",
    "ClassRates",
    "Clustering",
    "ClusteringMetric",
    "Distance",
    "EmbeddingSpaceMetric",
    "Evaluation",
    "OpenSetMetric",
    "OpenSetScores",
    "PairMetric",
    "QueryCurves",
    "RankDepth",
    "RetrievalMetric",
    "VerificationCurve",
    "class_spectrum",
    "evaluate",
    "evaluate_graded",
    "examine",
    "k_means",
    "neighbors",
    "query_curves",
    "spectrum",
    "verify",
]
