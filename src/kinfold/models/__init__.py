"""From an item to its embedding: backbones by name, pooling, heads, and what concerns their weights."""

from kinfold.models.backbone import Backbone
from kinfold.models.creation import create
from kinfold.models.embedder import Embedder
from kinfold.models.initialization import initialize
from kinfold.models.rank_batch_norm import rank_batch_norm
from kinfold.models.weights import load_weights, manifest

__all__ = ["Backbone", "Embedder", "create", "initialize", "load_weights", "manifest", "rank_batch_norm"]
