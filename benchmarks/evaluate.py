"""Measure exact evaluation against the float32 product alone, against faiss and against the peer.

    make bench-evaluate                                       # all of it: about ten minutes
    python -m benchmarks.evaluate --no-peer --sizes cub       # some of it

The floor is the float32 product of all queries with the whole gallery, block by block, into one buffer: no ranking, no
metric. Times are minima of rounds that take turns; memory is the peak of a fresh process above what it held once the
inputs were there.
"""

import argparse
import json
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.timing import about
from kinfold.metrics import evaluate, neighbors

# rows, dimension, classes, and the noise that leaves recall@1 about where trained nets do
SIZES = {"sop": (60_502, 128, 11_316, 1.4), "cub": (5_924, 512, 100, 3.5)}
GALLERIES = (125_000, 250_000, 500_000, 1_000_000)
QUERIES, DIM = 10_000, 128
FIRST = ["recall@1", "recall@10", "recall@100", "precision@1", "r-precision", "map@r"]
Work = Callable[[], object]


def data(rows: int, dim: int, classes: int, noise: float = 1.4) -> tuple[torch.Tensor, np.ndarray[Any, Any]]:
    """Unit embeddings of classes of at least two items."""
    rng = np.random.default_rng(0)
    labels = np.concatenate([np.repeat(np.arange(classes), 2), rng.integers(0, classes, rows - 2 * classes)])
    rng.shuffle(labels)
    generator = torch.Generator().manual_seed(0)
    centers = torch.randn(classes, dim, generator=generator)
    x = centers[torch.from_numpy(labels)] + noise * torch.randn(rows, dim, generator=generator)
    return torch.nn.functional.normalize(x), labels


def floor(x: torch.Tensor, y: torch.Tensor, rows: int = 1024, columns: int = 65_536) -> Work:
    buffer = torch.empty(min(rows, len(x)) * min(columns, len(y)))

    def work() -> None:
        for i in range(0, len(x), rows):
            for j in range(0, len(y), columns):
                left, right = x[i : i + rows], y[j : j + columns]
                torch.mm(left, right.T, out=buffer[: len(left) * len(right)].view(len(left), len(right)))

    return work


def faiss_flat(x: torch.Tensor) -> Work:
    import faiss

    def work() -> None:
        index = faiss.IndexFlatIP(x.shape[1])
        index.add(x.numpy())
        index.search(x.numpy(), 101)

    return work


def peer(x: torch.Tensor, labels: np.ndarray[Any, Any]) -> Work:
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

    names = ("precision_at_1", "r_precision", "mean_average_precision_at_r")
    calculator = AccuracyCalculator(include=names, k="max_bin_count")
    return lambda: calculator.get_accuracy(x, torch.from_numpy(labels))


def subjects(name: str) -> dict[str, Work]:
    x, labels = data(*SIZES[name])
    ours = "kinfold: recall@1,10,100, P@1, R-precision, MAP@R"
    return {
        "float32 product alone (the floor)": floor(x, x),
        ours: lambda: evaluate(x, labels, metrics=FIRST),
        "the same with MAP@1000": lambda: evaluate(x, labels, metrics=[*FIRST, "map@1000"]),
        "the same with MAP@1000, NMI, AMI, F1": lambda: evaluate(
            x, labels, metrics=[*FIRST, "map@1000", "nmi", "ami", "f1"]
        ),
        "kinfold: P@1, R-precision, MAP@R": lambda: evaluate(x, labels, metrics=FIRST[3:]),
        "kinfold: 100 neighbors": lambda: neighbors(x, k=100),
        "faiss flat index: 101 neighbors": faiss_flat(x),
        "pytorch-metric-learning: P@1, R-precision, MAP@R": peer(x, labels),
    }


def large(size: int) -> dict[str, Work]:
    y, labels = data(size, DIM, size // 5)
    x, query_labels = data(QUERIES, DIM, QUERIES // 5)
    return {
        "product": floor(x, y),
        "evaluate": lambda: evaluate(x, query_labels, y, labels, metrics=FIRST),
        "neighbors": lambda: neighbors(x, y, k=100),
    }


def timed(works: dict[str, Work], rounds: int) -> dict[str, float]:
    """Minimum of rounds that take turns; what takes over a minute is run once."""
    best = dict.fromkeys(works, float("inf"))
    for _ in range(rounds):
        for name, work in works.items():
            if 60.0 < best[name] < float("inf"):
                continue
            start = time.perf_counter()
            work()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def peak(kind: str, name: str) -> dict[str, float]:
    """Bytes that one piece of work takes in a process of its own: above its inputs, and in all."""
    command = [sys.executable, "-m", "benchmarks.evaluate", "--child", kind, name]
    process = subprocess.run(command, capture_output=True, text=True, check=True)
    memory: dict[str, float] = json.loads(process.stdout.splitlines()[-1])
    return memory


def child(kind: str, name: str) -> None:
    works = large(int(kind)) if kind.isdigit() else subjects(kind)
    Path("/proc/self/clear_refs").write_text("5")  # forget what making the data took
    held = _status("VmRSS")
    works[name]()
    most = _status("VmHWM")
    print(json.dumps({"above": most - held, "all": most}))


def _status(field: str) -> int:
    """Bytes of one field of this process' status: VmRSS (held now) or VmHWM (the most held)."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024


def table(title: str, rows: list[dict[str, Any]]) -> str:
    head = [f"| {title} | seconds | x floor | memory above the inputs |", "|---|---|---|---|"]
    lines = [f"| {r['name']} | {r['seconds']:.2f} | {r['ratio']:.2f} | {r['above'] / 2**30:.2f} GB |" for r in rows]
    return "\n".join(head + lines)


def large_table(rows: list[dict[str, Any]]) -> str:
    head = [
        "| gallery | product alone | evaluate | x product | 100 neighbors | x product | memory in all |",
        "|---|---|---|---|---|---|---|",
    ]
    lines = [
        f"| {r['gallery']:,} x {DIM} | {r['product']:.1f} s "
        f"| {r['evaluate']:.1f} s | {r['evaluate'] / r['product']:.2f} "
        f"| {r['neighbors']:.1f} s | {r['neighbors'] / r['product']:.2f} | {r['all'] / 2**30:.2f} GB |"
        for r in rows
    ]
    return "\n".join(head + lines)


def tables(data: dict[str, Any]) -> str:
    """All of it, as the documentation shows it."""
    parts = [table("{:,} x {}, {:,} classes".format(*SIZES[size][:3]), rows) for size, rows in data["sizes"].items()]
    if data["large"]:
        parts.append(f"{QUERIES:,} queries against a gallery:\n\n" + large_table(data["large"]))
    return "\n\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="*", default=[*SIZES, "large"], help=f"which of {', '.join(SIZES)}, large")
    parser.add_argument("--no-peer", action="store_true", help="leave pytorch-metric-learning out")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, default=Path("results/bench_evaluate.json"))
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    if arguments.child:
        child(*arguments.child)
        return
    result: dict[str, Any] = {"about": about(), "sizes": {}, "large": []}
    for size in [s for s in arguments.sizes if s in SIZES]:
        works = subjects(size)
        if arguments.no_peer:
            works = {name: work for name, work in works.items() if "pytorch" not in name}
        seconds = timed(works, arguments.rounds)
        least = seconds["float32 product alone (the floor)"]
        rows = [
            {"name": n, "seconds": s, "ratio": s / least, "above": peak(size, n)["above"]} for n, s in seconds.items()
        ]
        result["sizes"][size] = rows
        shape = "{:,} x {}, {:,} classes".format(*SIZES[size][:3])
        print(table(shape, rows), "\n", flush=True)
    if "large" in arguments.sizes:
        for gallery in GALLERIES:
            seconds = timed(large(gallery), 2)
            memory = max(peak(str(gallery), name)["all"] for name in ("evaluate", "neighbors"))
            result["large"].append({"gallery": gallery, **seconds, "all": memory})
        print(large_table(result["large"]), flush=True)
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(result, indent=1))
    print(f"\nwritten to {arguments.json}")


if __name__ == "__main__":
    main()
