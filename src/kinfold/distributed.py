"""The process group of torch.distributed: the rank of this process, and the exchange of tensors between processes.

A loss is computed on the global batch with its exact gradient. Every process computes the same loss of the same
gathered rows. The gradient of the rows of one process is then the sum over the processes. The mean over processes of
the parameter gradients, as in data-parallel training, is the gradient of a single process with the whole batch. This
holds for the network, which gets a part of the batch on every process, and for proxies, which get all of it. (A plain
gather in which a process puts its rows with their graph gives the network 1 / world size of its gradient.)
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
    """The processes of a group, seen from one of them. `World()` is a single process.

    Args:
        rank: The process rank, from 0.
        size: The world size: the number of processes.
    """

    rank: int = 0
    size: int = 1

    @staticmethod
    def current(enabled: bool | None = None) -> "World":
        """Return the running process group.

        Args:
            enabled: None returns the process group if there is one, False always a single process. True requires a
                process group.

        Raises:
            ValueError: `enabled` is True and there is no process group.
        """
        is_running = dist.is_available() and dist.is_initialized()
        if enabled and not is_running:
            raise ValueError(
                "there is no process group: call torch.distributed.init_process_group first, or start with torchrun"
            )
        if enabled is False or not is_running:
            return World()
        return World(dist.get_rank(), dist.get_world_size())

    @property
    def is_first(self) -> bool:
        """Whether this is process 0, which writes files and messages."""
        return self.rank == 0

    def gather_integers(self, numbers: list[int]) -> list[list[int]]:
        """Return the integers of every process, in the order of the process ranks; all have the same number of them."""
        if self.size == 1:
            return [numbers]
        local = torch.tensor(numbers, dtype=torch.int64, device=_device())
        gathered = [torch.empty_like(local) for _ in range(self.size)]
        dist.all_gather(gathered, local)
        return [entry.tolist() for entry in gathered]

    def gather(self, rows: Tensor, sizes: list[int] | None = None) -> Tensor:
        """Concatenate the rows of all processes in the order of their ranks; gradients flow back.

        Args:
            rows: The rows of this process, (B, ...).
            sizes: Number of rows of every process. Without it the processes exchange their sizes first.

        Returns:
            (sum of sizes, ...).
        """
        if self.size == 1:
            return rows
        sizes = [size for (size,) in self.gather_integers([rows.shape[0]])] if sizes is None else sizes
        if not rows.requires_grad:
            return _gather_rows(rows, sizes)
        result: Tensor = _GatherRanks.apply(rows, sizes, self.rank)  # type: ignore[no-untyped-call]
        return result

    def average_gradients(self, parameters: Iterable[Tensor]) -> None:
        """Replace every gradient by its mean over the processes.

        Parameters without a gradient are skipped, and so are class vectors that are sharded over the processes.
        """
        if self.size == 1:
            return
        by_dtype: dict[torch.dtype, list[Tensor]] = {}
        for parameter in parameters:
            if parameter.grad is not None and not hasattr(parameter, "class_shard"):
                gradient = parameter.grad
                if gradient.is_sparse:  # with the same rows on every process: classes are not drawn by rank
                    parameter.grad = gradient.coalesce()
                    gradient = parameter.grad.values()
                by_dtype.setdefault(gradient.dtype, []).append(gradient)
        for gradients in by_dtype.values():
            flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
            dist.all_reduce(flat)
            flat /= self.size
            parts = torch.split(flat, [gradient.numel() for gradient in gradients])
            for gradient, part in zip(gradients, parts, strict=True):
                gradient.copy_(part.view_as(gradient))

    def barrier(self) -> None:
        """Wait until all processes have reached this call."""
        if self.size > 1:
            dist.barrier()

    def take_share(self, rows: Tensor) -> Tensor:
        """Return the share of this process: every size-th row, so that expensive rows in sequence are spread."""
        return rows[self.rank :: self.size]

    def merge_shares(self, result: Tensor, share: Tensor) -> None:
        """Fill `result` on every process from the entries `share` that each process computed, in place."""
        if self.size == 1:
            return
        merged = torch.zeros_like(result)
        merged[share] = result[share]
        dist.all_reduce(merged)
        result.copy_(merged)

    def sum_in_place(self, values: Tensor) -> None:
        """Replace `values` by their sum over the processes, in place."""
        if self.size > 1:
            dist.all_reduce(values)

    def maximize_in_place(self, values: Tensor) -> None:
        """Replace `values` by their maximum over the processes, in place."""
        if self.size > 1:
            dist.all_reduce(values, op=dist.ReduceOp.MAX)


def resolve_rank(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Return the process rank and world size that were passed, or those of torch.distributed.

    Args:
        rank: The process rank, or None.
        world_size: The number of processes, or None.

    Raises:
        ValueError: Only one of the two was passed, or they do not fit together.
    """
    if (rank is None) != (world_size is None):
        raise ValueError(f"give rank and world_size together or neither, got rank={rank} and world_size={world_size}")
    if rank is None or world_size is None:
        world = World.current()
        return world.rank, world.size
    for name, value, least in (("world_size", world_size, 1), ("rank", rank, 0)):
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")
    if rank >= world_size:
        raise ValueError(f"rank must be below world_size={world_size}, got {rank}; ranks are counted from 0")
    return rank, world_size


class ProcessGroup:
    """Context manager that joins the process group of torchrun and leaves it at the end.

    It returns the `World`, a single process without torchrun. A process group that exists already is used and not
    destroyed.
    """

    def __enter__(self) -> World:
        has_peers = int(os.environ.get("WORLD_SIZE", "1")) > 1
        self._joined = has_peers and not dist.is_initialized()
        if self._joined:
            # Optimizers import torch._dynamo, and it keeps a process group that exists at that time. The threads of the
            # group would then outlive destroy_process_group and could abort the process while Python shuts down.
            importlib.import_module("torch._dynamo")
            has_gpu = torch.cuda.is_available()
            if has_gpu:  # otherwise every process of a machine would use its first GPU
                torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
            dist.init_process_group("cpu:gloo,cuda:nccl" if has_gpu else "gloo")
        return World.current()

    def __exit__(self, *error: object) -> None:
        # after an error the other processes may never arrive here: torchrun ends them
        if self._joined and error[0] is None:
            dist.destroy_process_group()


class _GatherRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, sizes: list[int], rank: int) -> Tensor:
        ctx.local_rows = slice(sum(sizes[:rank]), sum(sizes[: rank + 1]))
        return _gather_rows(rows, sizes)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        # a copy: the reduction works in place, and the caller may keep its gradient
        total = gradient.contiguous().clone()
        dist.all_reduce(total)
        return total[ctx.local_rows], None, None


def _gather_rows(rows: Tensor, sizes: list[int]) -> Tensor:
    # collective calls need equal sizes: pad shorter parts, and remove the padding afterwards
    longest = max(sizes)
    padded = rows.new_zeros(longest, *rows.shape[1:])
    padded[: rows.shape[0]] = rows.detach()
    gathered = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(gathered, padded)
    return torch.cat([part[:size] for part, size in zip(gathered, sizes, strict=True)])


def _device() -> torch.device:
    return torch.device("cuda", torch.cuda.current_device()) if dist.get_backend() == "nccl" else torch.device("cpu")
