"""Galleries: embeddings with labels, ids and paths on disk, to search, to extend and to name new items with.

| module | what it holds |
|---|---|
| `gallery` | `Gallery` |
| `matches` | what a search returns |
| `exact_search` | exact neighbors among unit vectors in mapped files |
| `folder`, `chunks`, `item_table` | the files |
"""

from kinfold.gallery.gallery import Gallery
from kinfold.gallery.matches import Match, Matches

__all__ = ["Gallery", "Match", "Matches"]
