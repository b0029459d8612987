"""Small problems that the tests share: batches with unequal classes, and every registered loss with its options."""

import inspect
import math

import torch
from torch import Tensor

import kinfold
from kinfold.losses import Loss
from kinfold.miners import Miner
from kinfold.pairs import Relation, Triplets

LOSSES = kinfold.list("losses")
NUM_CLASSES = 6


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def batch(seed: int = 0, dim: int = 7, sizes: tuple[int, ...] = (5, 3, 1, 4), dtype: torch.dtype = torch.float64):
    """Embeddings and labels of classes of unequal size in random order, among them one with a single member."""
    g = generator(seed)
    labels = torch.cat([torch.full((size,), label) for label, size in enumerate(sizes)])
    labels = labels[torch.randperm(len(labels), generator=g)]
    centers = torch.randn(len(sizes), dim, generator=g, dtype=torch.float64)
    noise = torch.randn(len(labels), dim, generator=g, dtype=torch.float64)
    return (centers[labels] * 0.7 + noise).to(dtype), labels


def make(name: str, *, dim: int = 7, **options: object) -> Loss:
    """A registered loss, with num_classes and dim where it owns proxies."""
    if "dim" in inspect.signature(kinfold.registry.resolve("losses", name)).parameters:
        options = {"num_classes": NUM_CLASSES, "dim": dim} | options
    return kinfold.losses.create(name, **options)


def has_proxies(name: str) -> bool:
    return make(name).proxies is not None


def kind_of(name: str) -> str:
    return make(name).kind


def draws(name: str) -> bool:
    """Whether a loss draws random tuples in its default setting."""
    return any(isinstance(module, Miner) for module in make(name).modules())


def all_triplets_of(relation: Relation, limit: int | None = None) -> Triplets:
    rows = [
        (a, p, n)
        for a in range(relation.positives.shape[0])
        for p in relation.positives[a].nonzero().flatten().tolist()
        for n in relation.negatives[a].nonzero().flatten().tolist()
    ]
    return Triplets.from_list(rows[:limit])


def gradient(loss: Loss, embeddings: Tensor, *args: object, **kwargs: object) -> tuple[Tensor, Tensor]:
    """Value and gradient by the embeddings."""
    leaf = embeddings.detach().clone().requires_grad_()
    value = loss(leaf, *args, **kwargs)
    loss.zero_grad()
    value.sum().backward()
    assert leaf.grad is not None
    return value.detach(), leaf.grad


def is_finite(*tensors: Tensor) -> bool:
    return all(bool(t.isfinite().all()) for t in tensors)


def close(a: float, b: float, tolerance: float = 1e-9) -> bool:
    return math.isclose(a, b, rel_tol=tolerance, abs_tol=tolerance)
