"""Measure losses on batches of growing size: time grows with the square of the size, memory with the size.

    python -m benchmarks.large_batches                                     # 2,048 to 32,768 rows
    python -m benchmarks.large_batches --only supcon --sizes 131072
    python -m benchmarks.large_batches --processor-time     # on a machine that has other work to do: one thread

Each entry is one forward and backward pass in a process of its own. Memory is the peak of the process above what it
held before the pass, as the operating system counts it.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

from benchmarks.timing import about

Results = dict[str, dict[str, tuple[float, float]]]
NAMES = ["similarity-margin", "contrastive", "margin", "multi-similarity", "supcon", "triplet", "lifted", "fastap"]
NAMES += ["smooth-ap", "dro-max", "dro-topk", "dro-topk-pn", "dro-kl", "dro-kl-grouped", "dro-kl-ball", "dro-chi2"]
SIZES = [2_048, 4_096, 8_192, 16_384, 32_768]

ONE = """
import resource, sys, time
import torch, kinfold
name, rows, dim, clock = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), getattr(time, sys.argv[4])
if clock is time.process_time:
    torch.set_num_threads(1)
loss = kinfold.losses.create(name)
labels = torch.arange(rows) // 4
warm = torch.randn(512, dim).requires_grad_()
loss(warm, labels[:512]).backward()
x = torch.randn(rows, dim, generator=torch.Generator().manual_seed(0)).requires_grad_()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start = clock()
loss(x, labels).backward()
seconds = clock() - start
print(seconds, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**20)
"""


def measure(name: str, rows: int, dim: int, clock: str) -> tuple[float, float]:
    """Return seconds and GB of one pass; `clock` is a function of `time`."""
    command = [sys.executable, "-c", ONE, name, str(rows), str(dim), clock]
    seconds, memory = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return float(seconds), float(memory)


def table(results: Results) -> str:
    """A line for each loss: seconds and GB above the inputs, by rows of the batch."""
    sizes = [*next(iter(results.values()))]
    lines = ["| loss | " + " | ".join(f"{int(rows):,}" for rows in sizes) + " |", "|---|" + "---:|" * len(sizes)]
    for name, by_rows in results.items():
        lines.append(f"| {name} | " + " | ".join(f"{s:.2f} s, {gb:.2f} GB" for s, gb in by_rows.values()) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=NAMES, help="losses to measure")
    parser.add_argument("--sizes", nargs="*", type=int, default=SIZES, help="rows of the batch")
    parser.add_argument("--dim", type=int, default=128, help="dimension of the embeddings")
    parser.add_argument("--json", type=Path, default=Path("results/bench_large_batches.json"), help="where numbers go")
    parser.add_argument("--processor-time", action="store_true", help="processor time on one thread, not wall time")
    arguments = parser.parse_args()
    clock = "process_time" if arguments.processor_time else "perf_counter"
    results: Results = {}
    for name in arguments.only:
        results[name] = {str(rows): measure(name, rows, arguments.dim, clock) for rows in arguments.sizes}
        lines = table({name: results[name]}).splitlines()
        print("\n".join(lines if name == arguments.only[0] else lines[-1:]), flush=True)
    about_run = {"clock": clock, **about()}
    if arguments.processor_time:
        about_run["threads"] = 1
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps({"about": about_run, "rows": results}, indent=1))


if __name__ == "__main__":
    main()
