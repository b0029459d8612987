"""Which products of rounded rows are worth their error on this machine: found out by a trial, once in a process."""

import time
from functools import cache

import torch
from torch import Tensor

_CLEARLY = 0.7  # of the time of a float32 product
_ROWS, _COLUMNS, _FEATURES = 256, 4096, 128


def product_speeds(device: torch.device) -> dict[torch.dtype, float]:
    """Seconds for one multiplication in a product of such rows, fastest first: float32, and before it what is clearly
    faster and as exact as it should be."""
    return {**_product_speeds(device.type, torch.get_num_threads())}


@cache
def _product_speeds(device: str, threads: int) -> dict[torch.dtype, float]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(_ROWS, _FEATURES, generator=generator).to(device)
    y = torch.randn(_COLUMNS, _FEATURES, generator=generator).to(device)
    operands = {torch.float32: (x, y)}
    if _exact_bfloat16(x, y):
        operands[torch.bfloat16] = (x.bfloat16(), y.bfloat16())
    if device == "cpu" and whole_number_products():
        operands[torch.int8] = (x.mul(30).to(torch.int8), y.mul(30).to(torch.int8))
    times: dict[torch.dtype, list[float]] = {dtype: [] for dtype in operands}
    for dtype, (left, right) in [*operands.items()] * 5:
        start = time.perf_counter()
        torch._int_mm(left, right.T) if dtype == torch.int8 else left @ right.T
        if device == "cuda":
            torch.cuda.synchronize()
        times[dtype].append(time.perf_counter() - start)
    best = {dtype: min(taken) / (_ROWS * _COLUMNS * _FEATURES) for dtype, taken in times.items()}
    limit = _CLEARLY * best[torch.float32]
    worth = [dtype for dtype in best if dtype == torch.float32 or best[dtype] < limit]
    return {dtype: best[dtype] for dtype in sorted(worth, key=lambda dtype: best[dtype])}


def _exact_bfloat16(x: Tensor, y: Tensor) -> bool:
    """Whether sums are kept in float32 and rounded once."""
    left, right = x.bfloat16(), y.bfloat16()
    exact = left.double() @ right.double().T
    off = (left @ right.T).double() - exact
    lengths = torch.linalg.vector_norm(x, dim=1)[:, None] * torch.linalg.vector_norm(y, dim=1)
    return not bool((off.abs() > 1.01 * 2.0**-8 * exact.abs() + 136 * 2.0**-24 * 1.02 * lengths).any())


def whole_number_products() -> bool:
    """Whether there are products of int8 rows, and they are exact: some processors saturate on large numbers."""
    generator = torch.Generator().manual_seed(0)
    left = torch.randint(-127, 128, (48, _FEATURES), generator=generator, dtype=torch.int8)
    right = torch.randint(-127, 128, (64, _FEATURES), generator=generator, dtype=torch.int8)
    left[:2], right[:1], right[1:2] = 127, 127, -127
    left[1, ::2] = -127
    try:
        found = torch._int_mm(left, right.T)
    except (AttributeError, RuntimeError, NotImplementedError):  # not in this torch, or not for this processor
        return False
    return torch.equal(found.double(), left.double() @ right.double().T)
