"""Which products of rounded rows are fast and correct on this machine, measured once per process."""

import time
from functools import cache

import torch
from torch import Tensor

from kinfold.devices import synchronize
from kinfold.metrics._ranking import tuning

_FEATURES = 128  # of the rows by which products are checked


def time_products(device: torch.device) -> dict[torch.dtype, float]:
    """Return seconds per multiplication for the types of products that are worth using, fastest first.

    float32 is always among them. Other types are faster than `tuning.FAST_PRODUCT_SHARE` of it and computed correctly.
    """
    return {**_time_products(device.type, torch.get_num_threads())}


@cache
def _time_products(device: str, threads: int) -> dict[torch.dtype, float]:
    queries, columns, features = tuning.TIMING_SHAPE
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(queries, features, generator=generator).to(device)
    y = torch.randn(columns, features, generator=generator).to(device)
    operands = {torch.float32: (x, y)}
    if _has_correct_bfloat16_products(x, y):
        operands[torch.bfloat16] = (x.bfloat16(), y.bfloat16())
    if device == "cpu" and has_exact_int8_products():
        operands[torch.int8] = (x.mul(30).to(torch.int8), y.mul(30).to(torch.int8))
    times: dict[torch.dtype, list[float]] = {dtype: [] for dtype in operands}
    for dtype, (left, right) in [*operands.items()] * 5:
        start = time.perf_counter()
        torch._int_mm(left, right.T) if dtype == torch.int8 else left @ right.T
        synchronize(torch.device(device))
        times[dtype].append(time.perf_counter() - start)
    best = {dtype: min(seconds) / (queries * columns * features) for dtype, seconds in times.items()}
    limit = tuning.FAST_PRODUCT_SHARE * best[torch.float32]
    worth = [dtype for dtype in best if dtype == torch.float32 or best[dtype] < limit]
    return {dtype: best[dtype] for dtype in sorted(worth, key=lambda dtype: best[dtype])}


def _has_correct_bfloat16_products(x: Tensor, y: Tensor) -> bool:
    """Check that sums are accumulated in float32 and rounded once."""
    left, right = x.bfloat16(), y.bfloat16()
    exact = left.double() @ right.double().T
    error = (left @ right.T).double() - exact
    lengths = torch.linalg.vector_norm(x, dim=1)[:, None] * torch.linalg.vector_norm(y, dim=1)
    return not bool((error.abs() > 1.01 * 2.0**-8 * exact.abs() + 136 * 2.0**-24 * 1.02 * lengths).any())


def has_exact_int8_products() -> bool:
    """Check that torch multiplies int8 rows here, and exactly: some processors saturate on large numbers."""
    generator = torch.Generator().manual_seed(0)
    left = torch.randint(-127, 128, (48, _FEATURES), generator=generator, dtype=torch.int8)
    right = torch.randint(-127, 128, (64, _FEATURES), generator=generator, dtype=torch.int8)
    left[:2], right[:1], right[1:2] = 127, 127, -127
    left[1, ::2] = -127
    try:
        products = torch._int_mm(left, right.T)
    except (AttributeError, RuntimeError, NotImplementedError):  # not in this torch, or not for this processor
        return False
    return torch.equal(products.double(), left.double() @ right.double().T)
