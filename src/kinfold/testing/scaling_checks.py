"""Checks of a loss beyond one small batch: on ranks, on another device, in chunks, in large batches, after a step."""

import gc
import math
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode

from kinfold.dro import Robust
from kinfold.losses import Loss, tiles
from kinfold.testing.loss_probe import Fault, LossProbe, Skip, backward, make_rows, require_close
from kinfold.testing.second_device import count_waits

_SHARE = 10  # of the 24 items, on the first of two ranks


def check_ranks(probe: LossProbe) -> None:
    """Two ranks that gather a batch of unequal parts have the value, gradient and state of one process.

    The ranks are simulated one after the other, each with its own copy and its own global random state, for two steps.
    """
    if probe.is_random():
        raise Fault("the value depends on the global random state, which differs between ranks")
    single, ranks = probe.copy(torch.float64), [probe.copy(torch.float64) for _ in range(2)]
    for step in range(2):
        rows, labels = probe.embeddings.roll(step, dims=0) * (1 + step), probe.labels.roll(step)
        leaf = rows.clone().requires_grad_()
        expected = probe.run(single, leaf, labels)
        slope = backward(expected, leaf)
        total = torch.zeros_like(rows)
        for rank, loss in enumerate(ranks):
            parts = [part.clone().requires_grad_() for part in (rows[:_SHARE], rows[_SHARE:])]
            gathered = torch.cat(parts)
            value = probe.run(loss, gathered, labels, seed=1 + rank)
            require_close(value, expected, 1e-9, f"value of rank {rank} in step {step}")
            total += torch.cat([backward(value, part, keep_graph=True) for part in parts]) / len(ranks)
        require_close(total, slope, 1e-7, f"mean gradient of the ranks in step {step}")
    _require_same_state(*ranks)


def check_device(probe: LossProbe) -> str:
    """On another device, value and gradient are those of the CPU."""
    if probe.device is None:
        raise Skip(probe.reason or "no second device")
    if probe.draws():
        raise Skip("draws random numbers")
    x = probe.embeddings.float()
    expected, slope = probe.differentiate(x)
    loss, leaf = probe.copy(torch.float32, probe.device), x.to(probe.device).requires_grad_()
    labels = probe.labels.to(probe.device)
    value = probe.run(loss, leaf, labels)
    gradient = backward(value, leaf)
    require_close(value.detach().cpu(), expected, 1e-4, "value on the device")
    require_close(gradient.cpu(), slope, 1e-3, "gradient on the device")
    if probe.device.type != "second":
        return ""
    loss = probe.copy(torch.float32, probe.device)
    with count_waits() as waits:
        probe.run(loss, leaf, labels)
    return f"the host waits {sum(waits.values())} times"


def check_chunks(probe: LossProbe) -> None:
    """A kinfold loss has the same value and gradient from tiles of a few rows as from the whole matrix."""
    if not isinstance(probe.loss, Loss):
        raise Skip("not a kinfold loss")
    if not probe.loss.supports_chunks and not isinstance(probe.loss, Robust):
        raise Skip("works on the whole batch")
    if probe.draws():
        raise Skip("draws random numbers")
    results = []
    for rows in (len(probe.labels), 5):
        with _tiles_of(rows):
            results.append(probe.differentiate(probe.embeddings))
    for actual, expected, what in zip(results[1], results[0], ("value", "gradient"), strict=True):
        require_close(actual, expected, 1e-8, f"{what} in chunks against the whole matrix")


def check_memory_growth(probe: LossProbe) -> str:
    """No tensor grows faster than the square of the batch size."""
    largest = []
    for factor in (4, 8):
        x = make_rows(len(probe.labels) * factor, probe.dim, torch.float32).requires_grad_()
        with _LargestTensor() as mode:  # type: ignore[no-untyped-call]
            backward(probe.call(x, probe.labels.repeat(factor)), x)
        largest.append(max(mode.largest, 1))
    exponent = math.log2(largest[1] / largest[0])
    if exponent > 2.3:
        raise Fault(f"the largest tensor grows with the power {exponent:.1f} of the batch size")
    return f"power {exponent:.1f} of the batch size"


def check_kept_graph(probe: LossProbe) -> None:
    """After a step, nothing of its batch is kept."""
    loss = probe.copy(torch.float32)
    x = probe.embeddings.float().requires_grad_()
    product = x * 2
    backward(probe.run(loss, product), x)
    watched = weakref.ref(x)  # the graph ends in it
    del product, x
    gc.collect()
    if watched() is not None:
        raise Fault("keeps the graph of the last batch")


class _LargestTensor(TorchDispatchMode):  # type: ignore[no-untyped-call]
    largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in _pytree.tree_leaves(result):
            # a view that repeats rows has no memory of its own
            if isinstance(leaf, Tensor) and 0 not in leaf.stride():
                self.largest = max(self.largest, leaf.numel())
        return result


@contextmanager
def _tiles_of(rows: int) -> Iterator[None]:
    """Cut the matrices of pairs of the test batch into tiles of so many rows; with all rows, they stay whole."""
    limits = {"MIN_ROWS": 1, "TRIANGLE_ROWS": rows, "TILE_PAIRS": rows * rows, "WHOLE_PAIRS": rows * rows}
    before = {name: getattr(tiles, name) for name in limits}
    try:
        for name, limit in limits.items():
            setattr(tiles, name, limit)
        yield
    finally:
        for name, limit in before.items():
            setattr(tiles, name, limit)


def _require_same_state(first: nn.Module, second: nn.Module) -> None:
    for (name, one), other in zip(first.state_dict().items(), second.state_dict().values(), strict=True):
        if isinstance(one, Tensor) and not torch.equal(one, other):
            raise Fault(f"the state of two ranks differs after two steps: {name}")
