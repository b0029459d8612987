"""DDM: the batch whose distances are distributed as those of a larger pool (Roth et al., ICML 2020)."""

import torch
from torch import Tensor

from kinfold.pairs.labels import Labels
from kinfold.samplers.checks import check_integer, resolve_batches, select_classes
from kinfold.samplers.class_index import ClassIndex
from kinfold.samplers.matching import CandidateMatcher
from kinfold.samplers.sampler import Sampler


class DDMSampler(Sampler):
    """Distance distribution matching: of `candidates` SPC batches from a pool the one with the smallest Wasserstein
    distance between its histogram of pairwise Euclidean distances and that of the pool.

    The histograms have `bins` bins over the range of the pool. `moments=True` adds how far mean and standard deviation
    are off, with the weights of the published code: |mean| + |deviation| + 150 W. (That code took bin heights for
    samples, so that the places of the bins did not matter; here they do.)

    `replacement` and `batches` as for "spc": classes take turns unless "study". Needs embeddings.
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
        ranks: int | None = None,
    ) -> None:
        classes = select_classes(ClassIndex.from_labels(labels), batch_size, per_class, replacement)
        check_integer(1, bins=bins)
        self.matching = CandidateMatcher(batch_size, per_class, pool, candidates, replacement)
        self.bins = bins
        self.moments = moments
        batches = resolve_batches(batches, classes, batch_size, batch_size // per_class)
        super().__init__(classes, batch_size, batches, seed, rank, ranks)

    def plan(self, epoch: int) -> Tensor:
        assert self.bank is not None
        return self.matching.choose_batches(
            self.classes, self.bank.read_all(), self.cost, self.batches, self.seed, epoch
        )

    def cost(self, points: Tensor, candidates: Tensor) -> Tensor:
        """The cost (M,) of candidates (M, B), rows of the pool's points (P, D)."""
        cost = distribution_distances(points, candidates, self.bins)
        if self.moments:
            chosen = points[candidates]  # (M, B, D)
            mean = (chosen.mean(dim=1) - points.mean(dim=0)).norm(dim=1)
            deviation = (chosen.std(dim=1, correction=0) - points.std(dim=0, correction=0)).norm(dim=1)
            cost = mean + deviation + 150.0 * cost
        return cost


def distribution_distances(points: Tensor, candidates: Tensor, bins: int) -> Tensor:
    """Wasserstein distances (M,) between the histogram of the pool's distances and those of the candidates.

    >>> points = torch.tensor([[0.0], [1.0], [3.0]])
    >>> distribution_distances(points, torch.tensor([[0, 1, 2], [0, 1, 1], [0, 2, 2]]), bins=2)
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
    # on a line the Wasserstein distance is the area between the two cumulative distributions
    area: Tensor = (heights - pool).cumsum(dim=1)[:, :-1].abs().sum(dim=1) * width
    return area
