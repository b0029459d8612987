"""From embeddings to the two things every objective works on: a score for each pair, and who is kin of whom."""

from kinfold.pairs.cross_batch_memory import CrossBatchMemory
from kinfold.pairs.labels import Labels, reindex
from kinfold.pairs.measures import cosine, dot, euclidean, normalize, snr, sphere_distance, squared_euclidean
from kinfold.pairs.relation import Relation
from kinfold.pairs.tuples import Quadruplets, Triplets
from kinfold.pairs.view import View, full_precision, view

__all__ = [
    "CrossBatchMemory",
    "Labels",
    "Quadruplets",
    "Relation",
    "Triplets",
    "View",
    "cosine",
    "dot",
    "euclidean",
    "full_precision",
    "normalize",
    "reindex",
    "snr",
    "sphere_distance",
    "squared_euclidean",
    "view",
]
