"""Loss-augmented search for the clustering of a batch: facilities that serve all items, and disagree with the classes.

Greedy choice of one facility after the other, then local search over medoids (PAM), as in the released code of Oh Song
et al. (CVPR 2017). The search is one operator of `torch.compile` and `torch.func`, because the number of its steps
depends on the labels.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

# of facilities with the same score, such as those that would serve nobody, the nearest to all items is taken
_TIE_WEIGHT = 1e-9


@dataclass(frozen=True)
class Facilities:
    """The search problem, in float64 on the CPU.

    Attributes:
        distance: Distance of every item from every candidate, (B, R).
        codes: Class of each item as the position of one of its items, (B,).
        weight: Weight of the disagreement with the classes.
    """

    distance: Tensor
    codes: Tensor
    weight: float

    def choose_greedily(self, count: int) -> list[int]:
        """Choose facilities one by one; each is the one with the highest score beside those before."""
        chosen: list[int] = []
        nearest, served_by = self._assign(chosen)
        for _ in range(count):
            service = -torch.minimum(nearest[:, None], self.distance).sum(dim=0)
            scores = service + self.weight * (1.0 - self.agree_with(nearest, served_by, self.distance))
            scores = scores - _TIE_WEIGHT * self.distance.sum(dim=0)
            scores[chosen] = -torch.inf
            chosen.append(int(scores.argmax()))
            nearest, served_by = self._assign(chosen)
        return chosen

    def swap(self, chosen: list[int], is_item: Tensor, rounds: int) -> list[int]:
        """Replace facilities by other items of their clusters while that raises the score, in at most so many rounds.

        Args:
            chosen: Candidates, (K,).
            is_item: Which candidate is which item, boolean (B, R). A candidate that is no item may replace any.
            rounds: Largest number of rounds over all facilities.
        """
        free = ~is_item.any(dim=0)
        for _ in range(rounds):
            before = [*chosen]
            members = self._assign(chosen)[1]
            for slot in range(len(chosen)):
                inside = members == slot
                candidates = (free | is_item[inside].any(dim=0)).nonzero().flatten()
                if len(candidates) == 0:  # another facility at the same position serves all items of this one
                    continue
                others = [*chosen[:slot], *chosen[slot + 1 :]]
                nearest, served_by = self._assign(others)
                columns = self.distance[:, candidates]
                scores = self.weight * (1.0 - self.agree_with(nearest, served_by, columns)) - columns[inside].sum(dim=0)
                scores = scores - _TIE_WEIGHT * columns.sum(dim=0)
                chosen[slot] = int(candidates[scores.argmax()])
            if chosen == before:
                break
        return chosen

    def measure_agreement(self, chosen: list[int]) -> Tensor:
        """Return the normalized mutual information of classes and clusters."""
        nearest, served_by = self._assign(chosen[:-1])
        return self.agree_with(nearest, served_by, self.distance[:, chosen[-1:]])[0]

    def agree_with(self, nearest: Tensor, served_by: Tensor, candidates: Tensor) -> Tensor:
        """Return the normalized mutual information (C,) for facilities with one more candidate each.

        NMI = I / sqrt(H(clusters) H(classes)), 1 if there is one class only.

        Args:
            nearest: Distance from the facilities so far, (B,).
            served_by: Which of them serves each item, (B,).
            candidates: Distances from the candidates, (B, C).
        """
        size = len(self.codes)
        moved = (candidates < nearest[:, None]).T.double()  # (C, B)
        stays = torch.where(nearest.isinf(), 0.0, 1.0).double()
        cells = served_by * size + self.codes
        class_counts = _count_cells(self.codes, torch.ones_like(stays)[None])
        class_entropy = _compute_entropy(class_counts, size)
        # items that stay with their cluster, and those of the new one, by cluster and by cluster and class
        leaving = moved * stays
        clusters = [_count_cells(served_by, stays - leaving), moved.sum(dim=1, keepdim=True)]
        joint = [_count_cells(cells, stays - leaving), _count_cells(self.codes, moved)]
        cluster_entropy = _compute_entropy(torch.cat(clusters, dim=1), size)
        information = class_entropy + cluster_entropy - _compute_entropy(torch.cat(joint, dim=1), size)
        scale = (class_entropy * cluster_entropy).sqrt()
        agreement: Tensor = (information / scale.clamp(min=1e-10)).clamp(0.0, 1.0)
        return torch.where(class_entropy <= 0, 1.0, agreement)

    def _assign(self, chosen: list[int]) -> tuple[Tensor, Tensor]:
        """Distance from the nearest facility, and its number; infinite and 0 without any."""
        if not chosen:
            return torch.full_like(self.distance[:, 0], torch.inf), torch.zeros_like(self.codes)
        nearest, served_by = self.distance[:, chosen].min(dim=1)
        return nearest, served_by


def _count_cells(cells: Tensor, weights: Tensor) -> Tensor:
    """Sum the weights (C, B) of the items in each cell; a cell is counted at the first item of it, zero elsewhere."""
    first = (cells[:, None] == cells[None, :]).int().argmax(dim=1)
    return torch.zeros_like(weights).scatter_add_(1, first.expand_as(weights), weights)


def _compute_entropy(counts: Tensor, total: int) -> Tensor:
    """Return the entropy of a distribution given by its counts (C, cells), in nats, (C,)."""
    share = counts / total
    return -torch.xlogy(share, share).sum(dim=1)


@torch.library.custom_op("kinfold::find_facilities", mutates_args=())
def _find_facilities(distance: Tensor, codes: Tensor, is_item: Tensor, weight: float, rounds: int) -> list[Tensor]:
    chosen_mask = torch.zeros(distance.shape[1], dtype=torch.bool, device=distance.device)
    agreement = distance.new_ones(())
    has_class = codes >= 0
    if bool(has_class.any()) and bool(distance.isfinite().all()):
        rows = has_class.nonzero().flatten()
        problem = Facilities(distance[rows].double().cpu(), codes[rows].cpu(), weight)
        chosen = problem.choose_greedily(len(problem.codes.unique()))  # type: ignore[no-untyped-call]
        chosen = problem.swap(chosen, is_item[rows].cpu(), rounds)
        chosen_mask[torch.tensor(chosen, device=distance.device)] = True
        agreement = problem.measure_agreement(chosen).to(distance)
    return [chosen_mask, agreement]


@_find_facilities.register_fake
def _(distance: Tensor, codes: Tensor, is_item: Tensor, weight: float, rounds: int) -> list[Tensor]:
    return [distance.new_empty(distance.shape[1], dtype=torch.bool), distance.new_empty(())]


@_find_facilities.register_vmap
def _(info: Any, in_dims: Any, *arguments: Any) -> tuple[list[Tensor], list[int]]:
    def select(number: int) -> list[Any]:
        pairs = zip(arguments, in_dims, strict=True)
        return [value if dim is None else value.select(dim, number) for value, dim in pairs]

    results = [_find_facilities(*select(number)) for number in range(info.batch_size)]
    return [torch.stack(parts) for parts in zip(*results, strict=True)], [0, 0]


def find_facilities(
    distance: Tensor, codes: Tensor, is_item: Tensor, weight: float, rounds: int
) -> tuple[Tensor, Tensor]:
    """Find as many facilities as there are classes, by their score; no gradient passes through.

    score(S) = - sum of the distances from the nearest facility + weight (1 - NMI(clusters, classes))

    Args:
        distance: Distance of every item from every candidate, (B, R).
        codes: Class of each item, (B,); -1 for an item that is left out.
        is_item: Which candidate is which item, boolean (B, R).
        weight: Weight of the disagreement with the classes.
        rounds: Rounds of local search.

    Returns:
        Which candidates are facilities, boolean (R,), and the normalized mutual information, a scalar.

    Examples:
        >>> distance = torch.tensor([[0.0, 1.0, 3.0], [1.0, 0.0, 2.0], [3.0, 2.0, 0.0]])
        >>> codes = torch.tensor([0, 0, 2])
        >>> find_facilities(distance, codes, distance == 0, weight=0.0, rounds=5)
        (tensor([False,  True,  True]), tensor(1.))
    """
    with torch.no_grad():
        mask, agreement = _find_facilities(distance.detach(), codes, is_item, weight, rounds)
    return mask, agreement
