"""The process group of torch.distributed: which process this is, and what the processes exchange.

A loss sees the global batch with the exact gradient. Every process computes the same loss of the same gathered rows.
The gradient of a process' own rows is then the sum over the processes. The mean over processes of the parameters'
gradients, as data-parallel training takes it, is the gradient of one process with the whole batch: for the network,
of which every process saw a part, and for proxies, of which every process saw everything. (Putting one's own rows,
with their graph, into a plain gather gives the network 1/world size of its gradient.)
"""

import importlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True)
class World:
    """The processes that work together, and this one among them.

    Attributes:
        rank: The number of this process, from 0.
        size: The number of processes; 1 where there is no process group.
    """

    rank: int = 0
    size: int = 1

    @staticmethod
    def current(enabled: bool | None = None) -> "World":
        """Return the running process group.

        Args:
            enabled: None takes the process group where there is one, False always a single process, and True requires
                a process group.

        Raises:
            ValueError: `enabled` is True and there is no process group.
        """
        is_running = dist.is_available() and dist.is_initialized()
        if enabled and not is_running:
            raise ValueError("ranks=True needs torch.distributed.init_process_group first")
        if enabled is False or not is_running:
            return World()
        return World(dist.get_rank(), dist.get_world_size())

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes files and messages."""
        return self.rank == 0

    def gather_integers(self, numbers: list[int]) -> list[list[int]]:
        """The same few whole numbers of every rank, in the order of the ranks."""
        if self.size == 1:
            return [numbers]
        mine = torch.tensor(numbers, dtype=torch.int64, device=_device())
        found = [torch.empty_like(mine) for _ in range(self.size)]
        dist.all_gather(found, mine)
        return [entry.tolist() for entry in found]

    def gather(self, rows: Tensor, sizes: list[int] | None = None) -> Tensor:
        """Rows (sum of sizes, ...) of all ranks in their order; gradients flow back. `sizes`: rows of each rank."""
        if self.size == 1:
            return rows
        sizes = [size for (size,) in self.gather_integers([rows.shape[0]])] if sizes is None else sizes
        if not rows.requires_grad:
            return _gather_rows(rows, sizes)
        result: Tensor = _Gather.apply(rows, sizes, self.rank)  # type: ignore[no-untyped-call]
        return result

    def average_gradients(self, parameters: Iterable[Tensor]) -> None:
        """The mean over ranks of every gradient, in place; parameters without one are left alone."""
        if self.size == 1:
            return
        alike: dict[torch.dtype, list[Tensor]] = {}
        for parameter in parameters:
            if parameter.grad is not None:
                alike.setdefault(parameter.grad.dtype, []).append(parameter.grad)
        for gradients in alike.values():
            together = torch.cat([gradient.reshape(-1) for gradient in gradients])
            dist.all_reduce(together)
            together /= self.size
            parts = torch.split(together, [gradient.numel() for gradient in gradients])
            for gradient, part in zip(gradients, parts, strict=True):
                gradient.copy_(part.view_as(gradient))

    def barrier(self) -> None:
        """Until all ranks are here."""
        if self.size > 1:
            dist.barrier()

    def take_share(self, rows: Tensor) -> Tensor:
        """Return this process' share of the rows: every size-th one, so that expensive neighbors are spread."""
        return rows[self.rank :: self.size]

    def merge_shares(self, result: Tensor, share: Tensor) -> None:
        """Fill `result` on every process from the entries `share` that each process computed, in place."""
        if self.size == 1:
            return
        kept = torch.zeros_like(result)
        kept[share] = result[share]
        dist.all_reduce(kept)
        result.copy_(kept)

    def sum_in_place(self, values: Tensor) -> None:
        """Replace `values` by their sum over the processes."""
        if self.size > 1:
            dist.all_reduce(values)


def resolve_rank(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Return the rank and world size of this process: those that were passed, else those of torch.distributed.

    Raises:
        ValueError: One of the two was passed alone, or they do not fit together.
    """
    if (rank is None) != (world_size is None):
        raise ValueError(f"give rank and ranks together or neither, got rank={rank} and ranks={world_size}")
    if rank is None or world_size is None:
        world = World.current()
        return world.rank, world.size
    for name, value, least in (("ranks", world_size, 1), ("rank", rank, 0)):
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")
    if rank >= world_size:
        raise ValueError(f"rank must be below ranks={world_size}, got {rank}; ranks are counted from 0")
    return rank, world_size


class ProcessGroup:
    """Join the processes that torchrun started together with this one, and leave them at the end.

    A context manager that returns the `World`. A process group that exists already is used and left alone.
    """

    def __enter__(self) -> World:
        several = int(os.environ.get("WORLD_SIZE", "1")) > 1
        self._joined = several and not dist.is_initialized()
        if self._joined:
            # Optimizers import torch._dynamo, and it keeps a process group that exists at that time. The threads of the
            # group would then outlive destroy_process_group and could abort the process while Python shuts down.
            importlib.import_module("torch._dynamo")
            dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
        return World.current()

    def __exit__(self, *error: object) -> None:
        # after an error the other processes may not arrive here: torchrun ends them
        if self._joined and error[0] is None:
            dist.destroy_process_group()


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, sizes: list[int], rank: int) -> Tensor:
        ctx.mine = slice(sum(sizes[:rank]), sum(sizes[: rank + 1]))
        return _gather_rows(rows, sizes)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        # a copy: the reduction works in place, and the caller may keep its gradient
        total = gradient.contiguous().clone()
        dist.all_reduce(total)
        return total[ctx.mine], None, None


def _gather_rows(rows: Tensor, sizes: list[int]) -> Tensor:
    # collective calls need one size: shorter parts are padded, and the padding is cut off again
    longest = max(sizes)
    padded = rows.new_zeros(longest, *rows.shape[1:])
    padded[: rows.shape[0]] = rows.detach()
    found = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(found, padded)
    return torch.cat([part[:size] for part, size in zip(found, sizes, strict=True)])


def _device() -> torch.device:
    return torch.device("cuda", torch.cuda.current_device()) if dist.get_backend() == "nccl" else torch.device("cpu")
