"""From embeddings to what every objective works on: a score for each pair, and which pairs are positive or negative.

`make_pair_batch` checks the arguments of a call and returns a `PairBatch`: anchors, references and a `Relation` of
boolean masks. The measures (`cosine`, `euclidean`, ...) score the pairs. `CrossBatchMemory` keeps embeddings of earlier
batches.
"""

from kinfold.pairs.cross_batch_memory import CrossBatchMemory
from kinfold.pairs.distances import Distance
from kinfold.pairs.hyperbolic import Hyperbolic
from kinfold.pairs.label_columns import read_levels, read_tags
from kinfold.pairs.labels import Labels, reindex
from kinfold.pairs.measures import cosine, dot, euclidean, normalize, snr, sphere_distance, squared_euclidean
from kinfold.pairs.pair_batch import PairBatch, full_precision, make_pair_batch
from kinfold.pairs.relation import Relation, tree_relation
from kinfold.pairs.tuples import Quadruplets, Triplets

__all__ = [
    "CrossBatchMemory",
    "Distance",
    "Hyperbolic",
    "Labels",
    "PairBatch",
    "Quadruplets",
    "Relation",
    "Triplets",
    "cosine",
    "dot",
    "euclidean",
    "full_precision",
    "make_pair_batch",
    "normalize",
    "read_levels",
    "read_tags",
    "reindex",
    "snr",
    "sphere_distance",
    "squared_euclidean",
    "tree_relation",
]
