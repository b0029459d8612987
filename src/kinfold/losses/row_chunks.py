"""Sums over the similarity matrix in row chunks: value and gradient in one pass, and the matrix is never kept.

A chunk of rows stays in the processor's cache, where the many small steps of a loss cost little; the whole matrix would
be written to memory and read again by each of them. The gradients of the operands are computed chunk by chunk together
with the value, so that nothing of the size of the matrix is kept for the backward pass.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from kinfold.pairs.transforms import is_transformed

# pairs in a chunk: 4 MB in float32; below two chunks the plain graph is as fast
CHUNK_PAIRS = 2**20
# fewer rows make slow matrix products, and each chunk adds a gradient as large as the references
MIN_ROWS = 256

Sums = tuple[Tensor, Tensor]
Evaluate = Callable[[slice, Tensor, Tensor], Sums]


def should_chunk(rows: int, columns: int) -> bool:
    """Whether a matrix of this size is faster in row chunks. Not while compiling: the compiler fuses operations."""
    return rows > MIN_ROWS and rows * columns > CHUNK_PAIRS and not is_transformed()


def sum_in_chunks(evaluate: Evaluate, x: Tensor, y: Tensor, parameters: Sequence[Tensor]) -> Sums:
    """Sum the results of `evaluate` over row chunks of x.

    Args:
        evaluate: Called as evaluate(rows, x[rows], y); returns sums (k,) with and counts (k,) without a gradient.
        x: (B, d).
        y: (R, d).
        parameters: Tensors other than x and y that `evaluate` depends on and that need a gradient.

    Returns:
        Sums (k,) and counts (k,).
    """
    rows = max(MIN_ROWS, CHUNK_PAIRS // max(1, y.shape[0]))
    if not torch.is_grad_enabled():
        parts = [evaluate(part, x[part], y) for part in _split_rows(x.shape[0], rows)]
        return torch.stack([p[0] for p in parts]).sum(dim=0), torch.stack([p[1] for p in parts]).sum(dim=0)
    sums, counts = _ChunkedSum.apply(evaluate, rows, x, y, *parameters)  # type: ignore[no-untyped-call]
    return sums, counts


class _ChunkedSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, evaluate: Evaluate, rows: int, x: Tensor, y: Tensor, *parameters: Tensor) -> Sums:
        needed = ctx.needs_input_grad[2:]
        inputs = [x, y, *parameters]
        total: Sums | None = None
        gradients: list[list[Tensor | None]] = []  # [k][input]
        for part in _split_rows(x.shape[0], rows):
            with torch.enable_grad():
                leaves = [x[part].detach().requires_grad_(needed[0]), y.detach().requires_grad_(needed[1])]
                sums, counts = evaluate(part, *leaves)
                singles = sums.unbind()
            if not gradients:
                gradients = [
                    [torch.zeros_like(t) if w else None for t, w in zip(inputs, needed, strict=True)] for _ in sums
                ]
            total = (sums.detach(), counts) if total is None else (total[0] + sums.detach(), total[1] + counts)
            _add_gradients(gradients, singles, [*leaves, *parameters], needed, part)
        assert total is not None
        saved = [gradient for entries in gradients for gradient in entries if gradient is not None]
        ctx.save_for_backward(*inputs, *saved)
        ctx.evaluate, ctx.needed = evaluate, needed
        ctx.mark_non_differentiable(total[1])
        return total

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> Any:
        inputs, saved = ctx.saved_tensors[: len(ctx.needed)], iter(ctx.saved_tensors[len(ctx.needed) :])
        if torch.is_grad_enabled():  # the gradient itself is to be differentiated: this needs the whole matrix
            # views, so that the gradients of x and y are separate if they are one tensor
            leaves = [inputs[0].view_as(inputs[0]), inputs[1].view_as(inputs[1])]
            sums, _ = ctx.evaluate(slice(None), *leaves)
            requested = [t for t, needed in zip([*leaves, *inputs[2:]], ctx.needed, strict=True) if needed]
            results = iter(torch.autograd.grad(sums, requested, outer[0], create_graph=True, allow_unused=True))
            return None, None, *[next(results) if needed else None for needed in ctx.needed]
        result: list[Tensor | None] = [None] * len(ctx.needed)
        for weight in outer[0]:
            for position, needed in enumerate(ctx.needed):
                if needed:
                    scaled = next(saved) * weight
                    previous = result[position]
                    result[position] = scaled if previous is None else previous + scaled
        return None, None, *result


def _add_gradients(
    gradients: list[list[Tensor | None]],
    sums: Sequence[Tensor],
    leaves: list[Tensor],
    needed: Sequence[bool],
    part: slice,
) -> None:
    requested = [leaf for leaf, w in zip(leaves, needed, strict=True) if w]
    for k, (sum_gradients, single) in enumerate(zip(gradients, sums, strict=True)):
        if not single.requires_grad:
            continue
        keep = k + 1 < len(sums)
        results = iter(torch.autograd.grad(single, requested, retain_graph=keep, allow_unused=True))
        for position, (gradient, w) in enumerate(zip(sum_gradients, needed, strict=True)):
            new = next(results) if w else None
            if gradient is None or new is None:
                continue
            if position == 0:
                gradient[part] = new
            else:
                gradient += new


def _split_rows(count: int, rows: int) -> list[slice]:
    return [slice(start, min(start + rows, count)) for start in range(0, count, rows)]
