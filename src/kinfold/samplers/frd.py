"""FRD: batches that are close to a larger pool in Frechet distance (Roth et al., ICML 2020)."""

import torch
from torch import Tensor

from kinfold.pairs.labels import Labels
from kinfold.samplers.checks import resolve_batches, select_classes
from kinfold.samplers.class_index import ClassIndex
from kinfold.samplers.matching import CandidateMatcher
from kinfold.samplers.sampler import Sampler


class FRDSampler(Sampler):
    """Frechet distance matching (Roth et al., ICML 2020). Needs embeddings.

    Of several SPC batches from a pool, it chooses the one with the smallest Frechet distance to the pool.

    Args:
        labels: Class of each item, (N,): integers or strings.
        batch_size: Items per batch, over all processes. A multiple of `per_class`.
        per_class: Items per class in a batch.
        pool: Items per pool, from which the batch is chosen; at least `batch_size`.
        candidates: Candidate batches per pool.
        replacement: As in `SPCSampler`; classes take turns unless it is "study".
        batches: Batches per epoch; by default N // batch_size, or more if not all classes would come.
        seed: Seed of all draws, together with the epoch.
        rank, world_size: Process rank and world size; those of torch.distributed if left out. See `Sampler`.

    Raises:
        ValueError: An option is invalid, or the labels have too few classes for a batch.
    """

    needs_embeddings = True

    def __init__(
        self,
        labels: Labels,
        batch_size: int,
        per_class: int = 2,
        pool: int = 512,
        candidates: int = 10,
        replacement: str = "when-needed",
        batches: int | None = None,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        classes = select_classes(ClassIndex.from_labels(labels), batch_size, per_class, replacement)
        self.matcher = CandidateMatcher(batch_size, per_class, pool, candidates, replacement)
        batches = resolve_batches(batches, classes, batch_size, batch_size // per_class)
        super().__init__(classes, batch_size, batches, seed, rank, world_size)

    def plan(self, epoch: int) -> Tensor:
        assert self.bank is not None
        return self.matcher.choose_batches(
            self.classes, self.bank.read_all(), compute_frechet_distances, self.batches, self.seed, epoch
        )


def compute_frechet_distances(points: Tensor, candidates: Tensor) -> Tensor:
    """Return Frechet distances (M,) between the normal distributions fitted to the pool and to each candidate.

    |m_p - m_c|^2 + tr(S_p + S_c - 2 (S_p S_c)^(1/2))

    The trace of the root is the sum of the singular values of X_c L, where S_p = L L^T and S_c = X_c^T X_c. This also
    holds if a batch has fewer items than dimensions, and needs no matrix root.

    Args:
        points: Embeddings of the pool, (P, D).
        candidates: Rows of `points`, (M, B).

    Examples:
        >>> points, candidates = torch.tensor([[0.0], [2.0], [4.0]]), torch.tensor([[0, 1, 2], [0, 1, 0]])
        >>> compute_frechet_distances(points, candidates).round(decimals=4)
        tensor([0.0000, 2.4923])
    """
    chosen = points[candidates]  # (M, B, D)
    pool_mean, means = points.mean(dim=0), chosen.mean(dim=1)
    spread = (points - pool_mean) / max(points.shape[0] - 1, 1) ** 0.5
    spreads = (chosen - means[:, None]) / max(candidates.shape[1] - 1, 1) ** 0.5
    values, vectors = torch.linalg.eigh(spread.mT @ spread)
    product = spreads @ (vectors * values.clamp(min=0.0).sqrt())  # (M, B, D)
    wide = product.shape[1] < product.shape[2]
    gram = product @ product.mT if wide else product.mT @ product
    roots = torch.linalg.eigvalsh(gram).clamp(min=0.0).sqrt().sum(dim=1)
    traces = spread.square().sum() + spreads.square().sum(dim=(1, 2))
    distances: Tensor = (means - pool_mean).square().sum(dim=1) + traces - 2.0 * roots
    return distances.clamp(min=0.0)
