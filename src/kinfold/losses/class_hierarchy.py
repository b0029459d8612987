"""A tree of classes by the distances of their items, updated while training (Ge et al., ECCV 2018)."""

import torch
from torch import Tensor, nn

from kinfold.pairs.class_means import ClassMeans

FARTHEST = 4.0  # squared distance of opposite unit vectors


class ClassHierarchy(nn.Module):
    """Classes, merged level by level where their items are near each other.

    Level 0 merges classes whose mean squared distance is below d_0, the mean spread of a class; level l those below
    d_l = d_0 + l (4 - d_0) / levels. Merging is transitive: two classes are in one node if a chain of near classes
    joins them. The tree is in `state_dict`.

    Args:
        num_classes: C, the number of classes.
        levels: Levels above the lowest.
        every: Epochs between two updates; the first is before the first step.

    Attributes:
        nodes: Node of every class on every level, (levels + 1, C).
        thresholds: d_l of every level, (levels + 1,).
        spreads: Mean squared distance of two items of each class, (C,).
        is_known: Whether there was an update.
    """

    nodes: Tensor
    thresholds: Tensor
    spreads: Tensor
    is_known: Tensor

    def __init__(self, num_classes: int, levels: int = 16, every: int = 1) -> None:
        super().__init__()
        for name, value in (("num_classes", num_classes), ("levels", levels), ("every", every)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        self.num_classes = num_classes
        self.levels = levels
        self.every = every
        self.register_buffer("nodes", torch.zeros(levels + 1, num_classes, dtype=torch.int64))
        self.register_buffer("thresholds", torch.zeros(levels + 1, dtype=torch.float64))
        self.register_buffer("spreads", torch.zeros(num_classes, dtype=torch.float64))
        self.register_buffer("is_known", torch.tensor(False))

    def is_due(self, epoch: int) -> bool:
        """Return whether the tree is to be updated before this epoch."""
        return epoch % self.every == 0 or not bool(self.is_known)

    @torch.no_grad()
    def update(self, embeddings: Tensor, labels: Tensor, seed: int = 0) -> None:
        """Build the tree from all training items; nothing is random.

        Args:
            embeddings: (N, d).
            labels: Integers in 0..num_classes-1, (N,).
            seed: Not used.

        Raises:
            ValueError: A label is out of range.
        """
        if len(labels) == 0 or int(labels.min()) < 0 or int(labels.max()) >= self.num_classes:
            raise ValueError(
                f"the hierarchy has the classes 0..{self.num_classes - 1}: give labels in that range, at least one; "
                "kinfold.pairs.reindex makes them"
            )
        means = ClassMeans.from_embeddings(embeddings, labels, self.num_classes)
        spreads, exists = means.measure_spreads(), means.counts > 0
        start = float(spreads[exists].mean())
        steps = torch.arange(self.levels + 1, dtype=torch.float64)
        thresholds = start + steps * (FARTHEST - start) / self.levels
        edges, lengths = _span_tree(means)
        nodes = torch.stack([_merge(edges[lengths < limit], self.num_classes) for limit in thresholds.tolist()])
        for buffer, value in ((self.nodes, nodes), (self.thresholds, thresholds), (self.spreads, spreads)):
            buffer.copy_(value)
        self.is_known.fill_(True)

    def merge_thresholds(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Return d_l of the lowest level on which two classes are in one node, (B, R).

        Classes that no level merges get the highest threshold.

        Args:
            rows, columns: Classes, (B,) and (R,).
        """
        apart = (self.nodes[:, rows, None] != self.nodes[:, None, columns]).sum(dim=0)  # levels before they merge
        return self.thresholds[apart.clamp(max=self.levels)]


def _span_tree(means: ClassMeans) -> tuple[Tensor, Tensor]:
    """Edges (C - 1, 2) of the shortest tree that joins all classes, and their lengths: Prim's algorithm, O(C^2)."""
    count = len(means.counts)
    distance = torch.full((count,), torch.inf, dtype=torch.float64)
    parent = torch.zeros(count, dtype=torch.int64)
    outside = torch.ones(count, dtype=torch.bool)
    edges, lengths, current = [], [], 0
    for _ in range(count - 1):
        outside[current] = False
        row = means.measure_distances(torch.tensor([current]))[0]
        nearer = outside & (row < distance)
        distance, parent = torch.where(nearer, row, distance), torch.where(nearer, current, parent)
        current = int(torch.where(outside, distance, torch.inf).argmin())
        edges.append((int(parent[current]), current))
        lengths.append(float(distance[current]))
    return torch.tensor(edges, dtype=torch.int64).reshape(-1, 2), torch.tensor(lengths, dtype=torch.float64)


def _merge(edges: Tensor, count: int) -> Tensor:
    """Return the node of each of `count` classes that these edges join: the lowest class in it."""
    nodes = [*range(count)]

    def find(item: int) -> int:
        while nodes[item] != item:
            nodes[item] = nodes[nodes[item]]
            item = nodes[item]
        return item

    for left, right in edges.tolist():
        low, high = sorted((find(left), find(right)))
        nodes[high] = low
    return torch.tensor([find(item) for item in range(count)])
