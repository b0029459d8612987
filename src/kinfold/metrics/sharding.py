"""The same call on several ranks: each works on its part of the rows, and all end with the whole result."""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True)
class Shard:
    """This process' part of work that `ranks` processes share."""

    rank: int
    ranks: int

    @staticmethod
    def alone() -> "Shard":
        return Shard(0, 1)

    @staticmethod
    def current(enabled: bool | None = None) -> "Shard":
        """The running process group; one process where there is none, or where `enabled` is False."""
        running = dist.is_available() and dist.is_initialized()
        if enabled and not running:
            raise ValueError("ranks=True needs torch.distributed.init_process_group first")
        if enabled is False or not running:
            return Shard.alone()
        return Shard(dist.get_rank(), dist.get_world_size())

    def part(self, rows: Tensor) -> Tensor:
        """Every ranks-th row, so that heavy neighbours are spread."""
        return rows[self.rank :: self.ranks]

    def merge(self, result: Tensor, mine: Tensor) -> None:
        """Fill `result` on every rank from the entries `mine` that each rank worked out."""
        if self.ranks == 1:
            return
        kept = torch.zeros_like(result)
        kept[mine] = result[mine]
        dist.all_reduce(kept)
        result.copy_(kept)

    def add(self, result: Tensor) -> None:
        """Sum over the ranks, in place."""
        if self.ranks > 1:
            dist.all_reduce(result)
