"""Sums over all rows of the similarity matrix, some rows at a time: value and gradient in one pass, none of it kept.

A block of rows stays in the processor's cache, where the many small steps of a loss cost little; the whole matrix would
travel to memory and back for each of them. The gradient by the operands is worked out block by block beside the value,
so that neither the matrix nor anything of its size is held for the backward pass.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from kinfold.pairs.transforms import is_transformed

# pairs in a block: 4 MB in float32; below two blocks the plain graph is as fast
BLOCK_PAIRS = 2**20
# fewer rows than this make poor matrix products, and each block adds a gradient as large as the references
LEAST_ROWS = 256

Sums = tuple[Tensor, Tensor]
Evaluate = Callable[[slice, Tensor, Tensor], Sums]


def worthwhile(rows: int, columns: int) -> bool:
    """Whether so many pairs are better taken in blocks. Not while compiling: the compiler has its own ways."""
    return rows > LEAST_ROWS and rows * columns > BLOCK_PAIRS and not is_transformed()


def sums_by_rows(evaluate: Evaluate, x: Tensor, y: Tensor, parameters: Sequence[Tensor]) -> Sums:
    """Sums (k,) with a gradient and counts (k,) without, added up over blocks of rows of x.

    evaluate(rows, x[rows], y) gives both for one block. `parameters` are what it depends on besides x and y.
    """
    rows = max(LEAST_ROWS, BLOCK_PAIRS // max(1, y.shape[0]))
    if not torch.is_grad_enabled():
        parts = [evaluate(part, x[part], y) for part in _blocks(x.shape[0], rows)]
        return torch.stack([p[0] for p in parts]).sum(dim=0), torch.stack([p[1] for p in parts]).sum(dim=0)
    sums, counts = _SumsByRows.apply(evaluate, rows, x, y, *parameters)  # type: ignore[no-untyped-call]
    return sums, counts


class _SumsByRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, evaluate: Evaluate, rows: int, x: Tensor, y: Tensor, *parameters: Tensor) -> Sums:
        wanted = ctx.needs_input_grad[2:]
        inputs = [x, y, *parameters]
        total: Sums | None = None
        slopes: list[list[Tensor | None]] = []  # [k][input]
        for part in _blocks(x.shape[0], rows):
            with torch.enable_grad():
                leaves = [x[part].detach().requires_grad_(wanted[0]), y.detach().requires_grad_(wanted[1])]
                sums, counts = evaluate(part, *leaves)
                singles = sums.unbind()
            if not slopes:
                slopes = [
                    [torch.zeros_like(t) if w else None for t, w in zip(inputs, wanted, strict=True)] for _ in sums
                ]
            total = (sums.detach(), counts) if total is None else (total[0] + sums.detach(), total[1] + counts)
            _add_slopes(slopes, singles, [*leaves, *parameters], wanted, part)
        assert total is not None
        ctx.save_for_backward(*inputs, *[slope for of_sum in slopes for slope in of_sum if slope is not None])
        ctx.evaluate, ctx.wanted = evaluate, wanted
        ctx.mark_non_differentiable(total[1])
        return total

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> Any:
        inputs, saved = ctx.saved_tensors[: len(ctx.wanted)], iter(ctx.saved_tensors[len(ctx.wanted) :])
        if torch.is_grad_enabled():  # a graph of the gradient is asked for: only the whole matrix has one
            # views, so that a batch compared with itself has two ends to take the gradient by
            ends = [inputs[0].view_as(inputs[0]), inputs[1].view_as(inputs[1])]
            sums, _ = ctx.evaluate(slice(None), *ends)
            asked = [t for t, wanted in zip([*ends, *inputs[2:]], ctx.wanted, strict=True) if wanted]
            found = iter(torch.autograd.grad(sums, asked, outer[0], create_graph=True, allow_unused=True))
            return None, None, *[next(found) if wanted else None for wanted in ctx.wanted]
        result: list[Tensor | None] = [None] * len(ctx.wanted)
        for weight in outer[0]:
            for place, wanted in enumerate(ctx.wanted):
                if wanted:
                    scaled = next(saved) * weight
                    so_far = result[place]
                    result[place] = scaled if so_far is None else so_far + scaled
        return None, None, *result


def _add_slopes(
    slopes: list[list[Tensor | None]], sums: Sequence[Tensor], leaves: list[Tensor], wanted: Sequence[bool], part: slice
) -> None:
    asked = [leaf for leaf, w in zip(leaves, wanted, strict=True) if w]
    for k, (of_sum, single) in enumerate(zip(slopes, sums, strict=True)):
        if not single.requires_grad:
            continue
        keep = k + 1 < len(sums)
        found = iter(torch.autograd.grad(single, asked, retain_graph=keep, allow_unused=True))
        for place, (slope, w) in enumerate(zip(of_sum, wanted, strict=True)):
            new = next(found) if w else None
            if slope is None or new is None:
                continue
            if place == 0:
                slope[part] = new
            else:
                slope += new


def _blocks(count: int, rows: int) -> list[slice]:
    return [slice(start, min(start + rows, count)) for start in range(0, count, rows)]
