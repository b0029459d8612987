"""Whether memory that tensors free stays with the process."""

import ctypes
import os
import sys

_LARGEST_BLOCK = 1 << 30  # bytes; larger ones are still returned to the system at once
_KEPT = (1 << 31) - 1  # bytes at the end of the heap, the most that mallopt takes
_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1  # of mallopt, from malloc.h


def keep_freed_memory() -> bool:
    """Let this process keep the memory that it frees, so that the next training step finds it ready.

    The C library returns large blocks to the system when they are freed. The next step gets them again as new pages,
    which the system has to clear: about a fifth of the time of a step of EfficientNet-lite0 on a CPU
    (`python -m benchmarks.freed_memory`). The peak of the process grows by a few percent.

    The setting is for a whole process, so only the command line and the workers of benches make it. It changes nothing
    where the variables MALLOC_... or GLIBC_TUNABLES are set, nor on systems without glibc.

    Returns:
        Whether the setting was made.
    """
    if not sys.platform.startswith("linux"):
        return False
    if any(name == "GLIBC_TUNABLES" or name.startswith("MALLOC_") for name in os.environ):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # musl has none
        return False
    return bool(mallopt(_MMAP_THRESHOLD, _LARGEST_BLOCK) and mallopt(_TRIM_THRESHOLD, _KEPT))
