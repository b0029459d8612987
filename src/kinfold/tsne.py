"""t-SNE of embeddings (van der Maaten, 2014; Barnes-Hut), by scikit-learn."""

from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from kinfold.optional import import_optional

PERPLEXITY = 30.0


def has_tsne() -> bool:
    """Return whether scikit-learn is installed."""
    return find_spec("sklearn") is not None


def compute_tsne(rows: Tensor) -> NDArray[np.float32]:
    """Lay out embeddings in the plane; the same rows give the same layout.

    Args:
        rows: Embeddings (N, d), N > 3, normalized if their similarity is the cosine.

    Returns:
        Coordinates (N, 2).

    Raises:
        ImportError: scikit-learn is not installed.
    """
    manifold = import_optional("sklearn.manifold", "scikit-learn", "report", "t-SNE")
    perplexity = min(PERPLEXITY, (len(rows) - 1) / 3)
    tsne = manifold.TSNE(2, perplexity=perplexity, init="pca", random_state=0, method="barnes_hut")
    points: NDArray[np.float32] = tsne.fit_transform(np.ascontiguousarray(rows.double().numpy()))
    return points.astype(np.float32)
