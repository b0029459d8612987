"""Embedding networks: backbones by name, pooling, heads, and their weights."""

from kinfold.models.backbone import Backbone
from kinfold.models.creation import create
from kinfold.models.distributed_batch_norm import synchronize_batch_norm
from kinfold.models.embedder import Embedder
from kinfold.models.initialization import initialize
from kinfold.models.weight_files import list_weight_shapes, load_weights

__all__ = [
    "Backbone",
    "Embedder",
    "create",
    "initialize",
    "list_weight_shapes",
    "load_weights",
    "synchronize_batch_norm",
]
