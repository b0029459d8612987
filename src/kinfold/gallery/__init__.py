"""Galleries: embeddings with labels, ids and paths on disk, to search, to extend and to name new items with.

| module | what it holds |
|---|---|
| `gallery` | `Gallery` |
| `matches` | what a search returns |
| `open_set` | what `identify` returns, and its threshold |
| `adding` | items of a dataset or a feature file |
| `exact_search` | exact neighbors among unit vectors in mapped files |
| `folder`, `chunks`, `item_table` | the files |
"""

from kinfold.gallery.gallery import Gallery
from kinfold.gallery.matches import Match, Matches
from kinfold.gallery.open_set import Identification, Identifications, OpenSetThreshold

__all__ = ["Gallery", "Identification", "Identifications", "Match", "Matches", "OpenSetThreshold"]
