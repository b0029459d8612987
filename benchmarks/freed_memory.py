"""What a training step on a CPU costs where freed memory goes back to the system, and where the process keeps it.

    python -m benchmarks.freed_memory

A step is a forward and a backward pass of EfficientNet-lite0 over 40 images of 96 pixels, on one thread. Two kinds of
process take turns, one of them with `kinfold.freed_memory.keep_freed_memory`. Printed are medians of wall time, of the
time that the system takes for pages, and the peak memory of the processes.
"""

import os
import resource
import statistics
import subprocess
import sys
import time

STEPS, ROUNDS = 10, 3


def measure(keep: bool) -> str:
    """Seconds of a step, seconds of the system in it, and peak MB of this process."""
    import torch

    from kinfold import models
    from kinfold.freed_memory import keep_freed_memory

    if keep:
        assert keep_freed_memory()
    torch.set_num_threads(1)
    network = models.create("efficientnet-lite0", 128, weights=None).train().set_memory_format("channels-last")
    images = torch.randn(40, 3, 96, 96).to(memory_format=torch.channels_last)
    wall, system = [], []
    for _ in range(STEPS):
        start, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_stime
        network(images).square().sum().backward()
        wall.append(time.perf_counter() - start)
        system.append(resource.getrusage(resource.RUSAGE_SELF).ru_stime - used)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return f"{statistics.median(wall[2:])} {statistics.median(system[2:])} {peak}"


def main() -> None:
    if len(sys.argv) == 2:
        print(measure(sys.argv[1] == "kept"))
        return
    rows: dict[str, list[list[float]]] = {"returned": [], "kept": []}
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    for _ in range(ROUNDS):
        for name, measured in rows.items():
            command = [sys.executable, "-m", "benchmarks.freed_memory", name]
            process = subprocess.run(command, env=environment, capture_output=True, check=True, text=True)
            measured.append([float(value) for value in process.stdout.split()])
    print("| freed memory is | ms of a step | of them the system's | peak, MB |\n|---|---:|---:|---:|")
    for name, measured in rows.items():
        wall, system, peak = (statistics.median(column) for column in zip(*measured, strict=True))
        print(f"| {name} | {1000 * wall:.0f} | {1000 * system:.0f} | {peak:.0f} |")


if __name__ == "__main__":
    main()
