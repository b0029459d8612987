"""DDM: batches whose distances are distributed like those of a larger pool (Roth et al., ICML 2020)."""

import torch
from torch import Tensor

from kinfold.pairs.labels import Labels
from kinfold.samplers.checks import check_integer, resolve_batches, select_classes
from kinfold.samplers.class_index import ClassIndex
from kinfold.samplers.matching import CandidateMatcher
from kinfold.samplers.sampler import Sampler


class DDMSampler(Sampler):
    """Distance distribution matching (Roth et al., ICML 2020). Needs embeddings.

    Of several SPC batches from a pool, it chooses the one with the smallest Wasserstein distance between its histogram
    of pairwise Euclidean distances and that of the pool.

    Args:
        labels: Class of each item, (N,): integers or strings.
        batch_size: Items per batch, over all processes. A multiple of `per_class`.
        per_class: Items per class in a batch.
        pool: Items per pool, from which the batch is chosen; at least `batch_size`.
        candidates: Candidate batches per pool.
        bins: Bins of the histograms, over the range of the pool.
        moments: Add the differences of mean and standard deviation to the Wasserstein distance W, with the weights of
            the published code: |mean| + |deviation| + 150 W. (That code used bin heights as samples, so that the
            positions of the bins did not matter; here they do.)
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
        bins: int = 50,
        moments: bool = False,
        replacement: str = "when-needed",
        batches: int | None = None,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        classes = select_classes(ClassIndex.from_labels(labels), batch_size, per_class, replacement)
        check_integer(1, bins=bins)
        self.matcher = CandidateMatcher(batch_size, per_class, pool, candidates, replacement)
        self.bins = bins
        self.moments = moments
        batches = resolve_batches(batches, classes, batch_size, batch_size // per_class)
        super().__init__(classes, batch_size, batches, seed, rank, world_size)

    def plan(self, epoch: int) -> Tensor:
        assert self.bank is not None
        return self.matcher.choose_batches(
            self.classes, self.bank.read_all(), self.compute_cost, self.batches, self.seed, epoch
        )

    def compute_cost(self, points: Tensor, candidates: Tensor) -> Tensor:
        """Return the cost (M,) of candidates (M, B), which are rows of the pool's embeddings (P, D)."""
        cost = compute_distribution_distances(points, candidates, self.bins)
        if self.moments:
            chosen = points[candidates]  # (M, B, D)
            mean = (chosen.mean(dim=1) - points.mean(dim=0)).norm(dim=1)
            deviation = (chosen.std(dim=1, correction=0) - points.std(dim=0, correction=0)).norm(dim=1)
            cost = mean + deviation + 150.0 * cost
        return cost


def compute_distribution_distances(points: Tensor, candidates: Tensor, bins: int) -> Tensor:
    """Return Wasserstein distances (M,) between the histogram of the pool's distances and those of the candidates.

    Args:
        points: Embeddings of the pool, (P, D).
        candidates: Rows of `points`, (M, B).
        bins: Number of bins.


    Examples:
        >>> points = torch.tensor([[0.0], [1.0], [3.0]])
        >>> compute_distribution_distances(points, torch.tensor([[0, 1, 2], [0, 1, 1], [0, 2, 2]]), bins=2)
        tensor([0.0000, 0.6667, 0.0000])
    """
    size, (number, batch) = points.shape[0], candidates.shape
    distance = torch.cdist(points, points)
    upper = torch.triu_indices(size, size, 1)
    pairs = distance[upper[0], upper[1]]
    if pairs.shape[0] == 0 or batch < 2:
        return points.new_zeros(number)
    low, high = pairs.min(), pairs.max()
    width = (high - low) / bins
    if not float(width) > 0.0:
        return points.new_zeros(number)
    bin_of = ((distance - low) / width).long().clamp_(0, bins - 1)  # (P, P)
    pool = torch.bincount(bin_of[upper[0], upper[1]], minlength=bins).to(points.dtype) / pairs.shape[0]
    i, j = torch.triu_indices(batch, batch, 1)
    chosen = bin_of[candidates[:, i], candidates[:, j]]  # (M, B (B - 1) / 2)
    chosen = chosen + torch.arange(number)[:, None] * bins
    heights = torch.bincount(chosen.flatten(), minlength=number * bins).view(number, bins).to(points.dtype) / i.shape[0]
    # in one dimension the Wasserstein distance is the area between the two cumulative distributions
    area: Tensor = (heights - pool).cumsum(dim=1)[:, :-1].abs().sum(dim=1) * width
    return area
