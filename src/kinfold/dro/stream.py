"""Worst-case weights of a long stream of losses, found in passes over parts of it.

The worst-case weight of a pair depends on its loss l alone: w(l), with one or two unknown numbers. A solver finds them
in a few passes, so that the losses of all pairs are never held at once. There are two kinds of weights:

- zero below a threshold (top-k, simplex, chi-square ball): a list of the pairs with the largest losses is enough, and
  the set is solved on this list;
- an exponential exp(b l): average with b = 0 and the KL ball with an unknown b in `tilt_stream`. KL, whose b is known,
  needs no solver: `log_mean_exp` takes one pass.

Losses come as matrices with a mask. In a batch that is compared with itself they cover the upper triangle of the
matrix of pairs, and each entry stands for two (`copies`). Sums are in float64.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import torch
from torch import Tensor

from kinfold.pairs.masks import HUGE, mask_out

# entries of a list of pairs: with losses, rows and columns 100 MB
LONGEST_LIST = 1 << 22

BoundOfCount: TypeAlias = Callable[[int], float]


@dataclass(frozen=True)
class PairList:
    """Pairs and their losses.

    Attributes:
        losses: (T,).
        rows, columns: Positions in the matrix of all pairs, (T,) int64.
        weights: (T,), float64; empty until the weights are known.
    """

    losses: Tensor
    rows: Tensor
    columns: Tensor
    weights: Tensor


@dataclass(frozen=True)
class LossTile:
    """Losses of some rows and columns of the matrix of pairs.

    Attributes:
        losses: (r, c), without a graph.
        mask: Which of them belong to the group, boolean (r, c).
        row, column: Position of the first entry in the matrix of all pairs.
    """

    losses: Tensor
    mask: Tensor
    row: int
    column: int

    def count(self) -> int:
        """Number of entries in the group."""
        return int(self.mask.view(torch.uint8).sum(dim=-1, dtype=torch.int32).sum())

    def inside(self) -> Tensor:
        """Losses, (r c,), with about -1e30 outside the group."""
        return mask_out(self.losses, self.mask).reshape(-1)


class Solver(Protocol):
    """Finds the worst-case weights of one group of losses."""

    copies: int
    finished: bool

    @property
    def needs_sample(self) -> bool:
        """Whether a first guess from a sample saves passes."""

    def start(self, sample: Tensor, share: float) -> None:
        """Take a first guess from a sample (n,) of the losses; `share` is its size relative to all of them."""

    def add(self, tile: LossTile) -> None:
        """Take in a part of the losses."""

    def end_pass(self) -> None:
        """Every loss was added once: finish, or ask for another pass."""

    def take_pairs(self) -> PairList | None:
        """Return the pairs that have weight; None if `weigh` is to be used."""

    def weigh(self, losses: Tensor) -> Tensor:
        """Return the weight of every loss."""

    @property
    def value(self) -> float:
        """The robust value, where there is no list of pairs."""


class LargestLosses:
    """The entries with the largest losses of a stream, above a threshold that rises as entries come in.

    Args:
        size: How many to keep.
        with_ties: Whether all entries that equal the smallest one kept are kept too.
    """

    def __init__(self, size: int, with_ties: bool = False) -> None:
        self.size = size
        self.with_ties = with_ties
        self.threshold = -HUGE / 2
        self._parts: list[tuple[Tensor, Tensor, Tensor]] = []
        self._length = 0

    def add(self, tile: LossTile) -> None:
        """Take in a tile."""
        flat = tile.inside()
        if self._length < self.size and flat.shape[0] > 2 * self.size:
            index = self._start(flat)
        else:
            index = (flat >= self.threshold if self.with_ties else flat > self.threshold).nonzero().squeeze(1)
        if index.shape[0] == 0:
            return
        width = tile.losses.shape[1]
        self._parts.append((flat[index], index // width + tile.row, index % width + tile.column))
        self._length += index.shape[0]
        if self._length >= 2 * self.size:
            self._cut()

    def _start(self, flat: Tensor) -> Tensor:
        """Positions of the largest entries of a tile that has many."""
        best = flat.topk(self.size)
        if float(best.values[-1]) <= -HUGE / 2:
            return best.indices[best.values > -HUGE / 2]
        return (flat >= best.values[-1]).nonzero().squeeze(1) if self.with_ties else best.indices

    def _cut(self) -> None:
        losses, rows, columns = (torch.cat(parts) for parts in zip(*self._parts, strict=True))
        if losses.shape[0] > self.size:
            best = losses.topk(self.size)
            lowest = float(best.values[-1])
            index = (losses >= lowest).nonzero().squeeze(1) if self.with_ties else best.indices
            losses, rows, columns = losses[index], rows[index], columns[index]
            self.threshold = max(self.threshold, lowest)
        self._parts = [(losses, rows, columns)]
        self._length = losses.shape[0]

    def take(self) -> PairList:
        """Return what was kept, without weights."""
        if not self._parts:
            nothing = torch.zeros(0, dtype=torch.int64)
            return PairList(torch.zeros(0), nothing, nothing, torch.zeros(0, dtype=torch.float64))
        self._cut()
        losses, rows, columns = self._parts[0]
        return PairList(losses, rows, columns, losses.new_zeros(0, dtype=torch.float64))

    def __len__(self) -> int:
        return self._length


def weigh_list(pairs: PairList, copies: int, solve: Callable[[Tensor], Tensor]) -> PairList:
    """Return the pairs with the weights that `solve` gives their losses, each of which occurs `copies` times."""
    weights = solve(pairs.losses.double().repeat_interleave(copies)).double().view(-1, copies).sum(dim=1)
    used = (weights > 0).nonzero().squeeze(1)
    return PairList(pairs.losses[used], pairs.rows[used], pairs.columns[used], weights[used])


class TopKSolver:
    """The k largest losses; `solve` gives their weights.

    Args:
        k: Number of entries.
        solve: Called with the largest losses and with k, which the number of entries may have lowered.
        copies: How many entries of the matrix an entry stands for.
    """

    def __init__(self, k: int, solve: Callable[[Tensor, int], Tensor], copies: int) -> None:
        self.k = k
        self.copies = copies
        self.finished = False
        self.count = 0
        self._solve = solve
        self._largest = LargestLosses(-(-k // copies))

    needs_sample = False

    def start(self, sample: Tensor, share: float) -> None: ...

    def add(self, tile: LossTile) -> None:
        self.count += tile.count() * self.copies
        self._largest.add(tile)

    def end_pass(self) -> None:
        self.finished = True

    def limit(self, entries: int) -> None:
        """Lower k, after the pass."""
        self.k = min(self.k, entries)

    def take_pairs(self) -> PairList:
        pairs = self._largest.take()
        if self.k == 0 or pairs.losses.shape[0] == 0:
            return PairList(pairs.losses[:0], pairs.rows[:0], pairs.columns[:0], pairs.weights)
        return weigh_list(pairs, self.copies, lambda losses: self._solve(losses, self.k))

    def weigh(self, losses: Tensor) -> Tensor:
        raise NotImplementedError("top-k ends with a list of pairs")

    @property
    def value(self) -> float:
        raise NotImplementedError("top-k ends with a list of pairs")


class LargestSolver:
    """All weight on the largest loss, shared equally among ties.

    Args:
        copies: How many entries of the matrix an entry stands for.
    """

    def __init__(self, copies: int) -> None:
        self.copies = copies
        self.finished = False
        self._highest, self._ties = -HUGE / 2, 0
        self._largest = LargestLosses(1, with_ties=True)

    needs_sample = False

    def start(self, sample: Tensor, share: float) -> None: ...

    def add(self, tile: LossTile) -> None:
        flat = tile.inside()
        highest = float(flat.max()) if flat.shape[0] else -HUGE
        if highest > self._highest:
            self._highest, self._ties = highest, 0
        elif highest < self._highest:
            return
        self._ties += int((flat == highest).sum()) * self.copies
        if self._ties <= LONGEST_LIST:
            self._largest.add(tile)

    def end_pass(self) -> None:
        self.finished = True

    def take_pairs(self) -> PairList | None:
        if self._ties > LONGEST_LIST:
            return None
        return weigh_list(self._largest.take(), self.copies, lambda losses: torch.full_like(losses, 1.0 / len(losses)))

    def weigh(self, losses: Tensor) -> Tensor:
        return (losses == self._highest).to(losses.dtype) / max(1, self._ties)

    @property
    def value(self) -> float:
        return self._highest
