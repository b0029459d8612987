"""From embeddings to exact neighbours, ranks and scores, at any size."""

from kinfold.metrics.clustering import Clustering, k_means
from kinfold.metrics.embedding_space import class_spectrum, spectrum
from kinfold.metrics.evaluation import Evaluation, evaluate, examine
from kinfold.metrics.neighbors import neighbors
from kinfold.metrics.verification import Curve
from kinfold.metrics.verify import QueryCurves, query_curves, verify

__all__ = [
    "Clustering",
    "Curve",
    "Evaluation",
    "QueryCurves",
    "class_spectrum",
    "evaluate",
    "examine",
    "k_means",
    "neighbors",
    "query_curves",
    "spectrum",
    "verify",
]
