"""Timing several things against each other in one run, and the memory that one of them takes."""

import gc
import platform
import time
from collections.abc import Callable

import torch

Work = Callable[[], None]


def about() -> dict[str, object]:
    """What was measured with what."""
    import kinfold  # not above: peers are timed in environments without it

    return {
        "torch": torch.__version__,
        "kinfold": kinfold.__version__,
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "machine": platform.machine(),
    }


def interleaved(works: dict[str, Work], seconds: float = 1.5, least: int = 5, most: int = 60) -> dict[str, float]:
    """Seconds of one call of each, the minimum over rounds in which they take turns.

    The machine may be busy with other things for a while; taking turns lets everyone suffer alike, and the minimum is
    what the work takes when it is left alone.
    """
    best = dict.fromkeys(works, float("inf"))
    for work in works.values():
        work()  # warm up: allocators, thread pools
    gc.collect()
    gc.disable()
    try:
        start, rounds = time.perf_counter(), 0
        while rounds < least or (rounds < most and time.perf_counter() - start < seconds):
            for name, work in works.items():
                begin = time.perf_counter()
                work()
                best[name] = min(best[name], time.perf_counter() - begin)
            rounds += 1
    finally:
        gc.enable()
    return best


def peak_bytes(work: Work) -> int:
    """The most memory that tensors of one call hold at a time, from the allocator's own events."""
    work()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        work()
    held = peak = 0
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    for event in sorted(events, key=lambda e: e.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak
