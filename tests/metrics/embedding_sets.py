"""Embeddings that make exact ranking hard: duplicates, ties, near-ties, collapse, huge and tiny norms."""

import numpy as np
import torch

RETRIEVAL = [
    *(f"{kind}@{k}" for kind in ("recall", "precision", "map") for k in (1, 2, 4, 8, 10, 100)),
    *("r-precision", "map@r", "map", "map@c", "map@1000", "map@c-printed", "map@1000-printed", "mrr"),
]


def make_embeddings(kind, n=260, d=12, classes=20, seed=0, dtype=torch.float32):
    """Return embeddings (n, d) and labels (n,), a NumPy array, of one kind."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, n)
    x = rng.normal(size=(n, d))
    if kind == "clustered":
        x = rng.normal(size=(classes, d))[labels] * 1.2 + x
    elif kind == "duplicated":
        x = x[rng.integers(0, n // 4, n)]
    elif kind == "tied":
        x = rng.integers(-1, 2, size=(n, d)).astype(float)
    elif kind == "near-ties":
        # pairs of directions that differ by less than the error of float32 products
        x = np.repeat(rng.normal(size=(n // 10 + 1, d)), 10, axis=0)[:n]
        x = x / np.linalg.norm(x, axis=1, keepdims=True) + rng.normal(size=(n, d)) * 2e-8
    elif kind == "collapsed":
        x = np.ones((n, d)) + rng.normal(size=(n, d)) * 1e-6
    elif kind == "identical":
        x = np.ones((n, d))
    elif kind == "huge":
        x = x * 1e18 * 10.0 ** rng.integers(-2, 2, size=(n, 1))
    elif kind == "tiny":
        x = x * 1e-18
    elif kind == "zeros":
        x[::3] = 0.0
    elif kind == "one far away":
        x[5] *= 1e6
    return torch.tensor(x, dtype=dtype), labels


KINDS = [
    "random", "clustered", "duplicated", "tied", "near-ties", "collapsed", "identical", "huge", "tiny", "zeros",
    "one far away",
]  # fmt: skip
