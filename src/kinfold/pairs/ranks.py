"""Rows of all ranks put together, so that a loss sees the global batch, with the exact gradient.

Every rank computes the same loss of the same gathered rows. The gradient of a rank's own rows is then the sum over the
ranks, and the mean over ranks of the parameters' gradients, as data-parallel training takes it, is the gradient of one
process with the whole batch: for the network, of which every rank saw a part, and for proxies, of which every rank saw
everything. (Putting one's own rows, with their graph, into a plain gather gives the network 1/ranks of its gradient.)
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True)
class Ranks:
    """This process among those that train together; `rank` 0 of 1 where there is no process group."""

    rank: int = 0
    count: int = 1

    @staticmethod
    def current() -> "Ranks":
        if not (dist.is_available() and dist.is_initialized()):
            return Ranks()
        return Ranks(dist.get_rank(), dist.get_world_size())

    @property
    def first(self) -> bool:
        return self.rank == 0

    def exchange(self, numbers: list[int]) -> list[list[int]]:
        """The same few whole numbers of every rank, in the order of the ranks."""
        if self.count == 1:
            return [numbers]
        mine = torch.tensor(numbers, dtype=torch.int64, device=_device())
        found = [torch.empty_like(mine) for _ in range(self.count)]
        dist.all_gather(found, mine)
        return [entry.tolist() for entry in found]

    def gather(self, rows: Tensor, sizes: list[int] | None = None) -> Tensor:
        """Rows (sum of sizes, ...) of all ranks in their order; gradients flow back. `sizes`: rows of each rank."""
        if self.count == 1:
            return rows
        sizes = [size for (size,) in self.exchange([rows.shape[0]])] if sizes is None else sizes
        if not rows.requires_grad:
            return _gathered(rows, sizes)
        result: Tensor = _Gather.apply(rows, sizes, self.rank)  # type: ignore[no-untyped-call]
        return result

    def average_gradients(self, parameters: Iterable[Tensor]) -> None:
        """The mean over ranks of every gradient, in place; parameters without one are left alone."""
        if self.count == 1:
            return
        alike: dict[torch.dtype, list[Tensor]] = {}
        for parameter in parameters:
            if parameter.grad is not None:
                alike.setdefault(parameter.grad.dtype, []).append(parameter.grad)
        for gradients in alike.values():
            together = torch.cat([gradient.reshape(-1) for gradient in gradients])
            dist.all_reduce(together)
            together /= self.count
            parts = torch.split(together, [gradient.numel() for gradient in gradients])
            for gradient, part in zip(gradients, parts, strict=True):
                gradient.copy_(part.view_as(gradient))

    def wait(self) -> None:
        """Until all ranks are here."""
        if self.count > 1:
            dist.barrier()


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, sizes: list[int], rank: int) -> Tensor:
        ctx.mine = slice(sum(sizes[:rank]), sum(sizes[: rank + 1]))
        return _gathered(rows, sizes)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        # a copy: the reduction works in place, and the caller may keep its gradient
        total = gradient.contiguous().clone()
        dist.all_reduce(total)
        return total[ctx.mine], None, None


def _gathered(rows: Tensor, sizes: list[int]) -> Tensor:
    # collective calls need one size: shorter parts are padded, and the padding is cut off again
    longest = max(sizes)
    padded = rows.new_zeros(longest, *rows.shape[1:])
    padded[: rows.shape[0]] = rows.detach()
    found = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(found, padded)
    return torch.cat([part[:size] for part, size in zip(found, sizes, strict=True)])


def _device() -> torch.device:
    return torch.device("cuda", torch.cuda.current_device()) if dist.get_backend() == "nccl" else torch.device("cpu")
