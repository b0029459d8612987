"""Embeddings of datasets: in memory, in feature files, and exact search among them.

| module | what it holds |
|---|---|
| `compute` | embeddings of a dataset in memory, on all processes together |
| `encoders` | what embeds: a run, a backbone or plain pixels |
| `writer` | embeddings in an .npz file, written so that an interrupted process can continue |
| `kept` | embeddings of images that a run keeps in its folder, so that an image is embedded once |
| `quantization` | fewer dimensions, int8 and binary codes, with exact rescoring |
| `stored_size` | the size that was chosen for a run, for its exports |
| `search` | exact nearest neighbors of a query in the embedding space of a run |
"""

from kinfold.embedding.compute import compute_embeddings
from kinfold.embedding.encoders import Encoder, fingerprint_run, flatten_pixels
from kinfold.embedding.quantization import Quantized, SizeRow, choose_size, compare_sizes, quantize
from kinfold.embedding.search import SearchIndex, SearchItem, SearchResult
from kinfold.embedding.stored_size import StoredSize, choose_run_size, read_run_size
from kinfold.embedding.writer import embed_to_file

__all__ = [
    "Encoder",
    "Quantized",
    "SearchIndex",
    "SearchItem",
    "SearchResult",
    "SizeRow",
    "StoredSize",
    "choose_run_size",
    "choose_size",
    "compare_sizes",
    "compute_embeddings",
    "embed_to_file",
    "fingerprint_run",
    "flatten_pixels",
    "quantize",
    "read_run_size",
]
