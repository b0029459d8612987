"""Triplets that are also measured from the positive: the anchor swap (Balntas et al., BMVC 2016)."""

import torch
from torch import Tensor

from kinfold.pairs import PairBatch, Quadruplets, Relation, Triplets
from kinfold.pairs.index_tuples import Tuples
from kinfold.pairs.transforms import is_transformed


def list_triplets(relation: Relation) -> Triplets:
    """List all triplets (a, p, n) of a relation.

    Examples:
        >>> list_triplets(Relation.from_labels(torch.tensor([0, 0, 1]))).negative
        tensor([2, 2])
    """
    if is_transformed():  # the number of triplets must not depend on values: all of (B, R, R), some of them not valid
        valid = relation.positives[:, :, None] & relation.negatives[:, None, :]
        rows, columns = (torch.arange(size, device=valid.device) for size in valid.shape[:2])
        index = torch.meshgrid(rows, columns, columns, indexing="ij")
        return Triplets(index[0].reshape(-1), index[1].reshape(-1), index[2].reshape(-1), valid.reshape(-1))
    anchor, positive = relation.positives.nonzero(as_tuple=True)
    pair, negative = relation.negatives[anchor].nonzero(as_tuple=True)
    return Triplets(anchor[pair], positive[pair], negative, torch.ones_like(pair, dtype=torch.bool))


def list_swapped(tuples: Tuples | None, batch: PairBatch) -> Tuples | None:
    """Return quadruplets (a, p, n, p), whose third score is that of the negative and the positive.

    Without tuples, or for selected pairs, all their triplets are listed.
    """
    if batch.references.shape[0] == 0:
        return tuples
    if isinstance(tuples, Quadruplets):
        raise ValueError("swap=True compares the positive and the negative of triplets: pass triplets or pairs")
    if tuples is None or isinstance(tuples, Relation):
        tuples = list_triplets(batch.relation if tuples is None else tuples)
    return Quadruplets(tuples.anchor, tuples.positive, tuples.negative, tuples.positive, tuples.valid, tuples.valid)


def find_farther(distance: Tensor, swap: bool) -> tuple[Tensor, Tensor] | None:
    """Return the distances of the positive and of the negative pair of each tuple, (T,) each.

    Args:
        distance: (2, T) for triplets, or (3, T) for the quadruplets of `list_swapped`.
        swap: Whether the smaller one of d(a, n) and d(p, n) is that of the negative pair.

    Returns:
        None for quadruplets without `swap`, which triplet losses do not take.
    """
    if len(distance) == 2:
        return distance[0], distance[1]
    return (distance[0], torch.minimum(distance[1], distance[2])) if swap else None
