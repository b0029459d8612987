"""Measure losses plain, inside torch.compile and with compiled tiles, in floors.

    python -m benchmarks.compiled_losses                              # all losses, 640 x 1024 and 4096 x 128
    python -m benchmarks.compiled_losses --ways 0 --size 1            # without compilers, 4096 x 128
    python -m benchmarks.compiled_losses --only supcon triplet --size 1

One thread and processor time, so that other work on the machine matters little. Each number is the median of five
rounds in which all ways take turns with the floor (normalize, one similarity matrix, the backward pass of its sum),
with the smallest and the largest of them. Losses with class vectors have one class for 5 or 4 samples, and the floor
compares samples with their class vectors.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import kinfold
from benchmarks.losses import floor, make
from benchmarks.timing import about

SIZES = [(640, 1024, 5), (4096, 128, 4)]
ROUNDS = 5
WAYS = ["plain", "torch.compile(loss)", "kinfold.losses.compile(loss)"]


def make_way(way: str, name: str, num_classes: int, dim: int) -> Any:
    """The loss in one of the ways that are measured."""
    compilers: dict[str, Any] = {
        "torch.compile(loss)": torch.compile,
        "kinfold.losses.compile(loss)": kinfold.losses.compile,
    }
    torch._dynamo.reset()  # it compiles one function for a few losses only
    loss = make(name, {}, None, num_classes, dim)
    return compilers[way](loss) if way in compilers else loss


def measure(name: str, size: tuple[int, int, int], ways: list[str]) -> dict[str, Any]:
    """Ratios to the floor by way: median, smallest and largest; and the seconds of the first call."""
    batch, dim, per_class = size
    x = torch.randn(batch, dim, generator=torch.Generator().manual_seed(0)).requires_grad_()
    labels = torch.arange(batch) // per_class

    def step(loss: Any) -> Callable[[], None]:
        def run() -> None:
            x.grad = None
            loss.zero_grad()
            loss(x, labels).backward()

        return run

    classes = batch // per_class
    vectors = getattr(make_way("plain", name, classes, dim), "proxies", None)
    proxies = None if vectors is None else vectors.detach().clone().flatten(0, -2).requires_grad_()
    works = {"floor": floor(x, proxies)} | {way: step(make_way(way, name, classes, dim)) for way in ways}
    first = {}
    for way, work in works.items():
        start = time.perf_counter()
        work()
        first[way] = time.perf_counter() - start
    repeats = 1 if batch > 1000 else 6
    rounds = []
    for _ in range(ROUNDS):
        times = {}
        for way, work in works.items():
            times[way] = min(_time(work) for _ in range(repeats))
        rounds.append({way: times[way] / times["floor"] for way in works if way != "floor"})
    ratios = {way: sorted(part[way] for part in rounds) for way in rounds[0]}
    return {
        "loss": name,
        "batch": batch,
        "dim": dim,
        "ratios": {way: [statistics.median(values), values[0], values[-1]] for way, values in ratios.items()},
        "first_call_seconds": first,
    }


def _time(work: Callable[[], None]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def table(results: list[dict[str, Any]]) -> str:
    """One row for each loss, one column for each size and way."""
    sizes = list(dict.fromkeys((r["batch"], r["dim"]) for r in results))
    ways = [way for way in WAYS if way in results[0]["ratios"]]
    head = [f"{batch} x {dim}, {way}" for batch, dim in sizes for way in ways]
    lines = ["| loss | " + " | ".join(head) + " |", "|---" * (len(head) + 1) + "|"]
    for name in dict.fromkeys(r["loss"] for r in results):
        cells = {(r["batch"], r["dim"]): r["ratios"] for r in results if r["loss"] == name}
        entries = [cells[size][way] for size in sizes if size in cells for way in ways]
        lines.append(f"| {name} | " + " | ".join(f"{m:.2f} ({low:.2f}-{high:.2f})" for m, low, high in entries) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], help="losses to measure (all)")
    parser.add_argument("--size", nargs="*", type=int, default=[0, 1], help=f"which of {SIZES}")
    parser.add_argument("--ways", nargs="*", type=int, default=[0, 1, 2], help=f"which of {WAYS}")
    parser.add_argument("--json", type=Path, default=Path("results/bench_compiled.json"), help="where the numbers go")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    names = arguments.only or kinfold.list("losses")
    results = []
    for size in (SIZES[i] for i in arguments.size):
        for name in names:
            results.append(measure(name, size, [WAYS[i] for i in arguments.ways]))
            print(table(results[-1:]).splitlines()[-1], flush=True)
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    about_run = {"clock": "processor time", **about()}
    arguments.json.write_text(json.dumps({"about": about_run, "results": results}, indent=1))
    print("\n" + table(results))


if __name__ == "__main__":
    main()
