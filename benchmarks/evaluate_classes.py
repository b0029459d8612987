"""Measure retrieval metrics for any number of classes, from two classes to two items per class.

    make bench-evaluate-classes
    python -m benchmarks.evaluate_classes --sizes 2000 --rounds 5

Times are processor times of one thread, minima of rounds in which all take turns. recall@k is compared with
`neighbors(k)`, R-precision and MAP@R (one call for both) with pytorch-metric-learning's AccuracyCalculator and faiss.
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.evaluate import data
from benchmarks.timing import about
from kinfold.metrics import evaluate, neighbors

# rows, dimension, noise of the classes
GRID = {"2000": (2_000, 64, 1.4), "10000": (10_000, 64, 1.4), "5924": (5_924, 512, 3.5)}
CLASSES = (2, 5, 10, 30, 100, 300, 1000)
QUERIES, GALLERY = 1_000, 60_000
PEER_BYTES = 4e9  # that its lists of neighbors may take
LONG = 8.0  # seconds above which one round is enough
Work = Callable[[], object]


def peer(x: torch.Tensor, labels: torch.Tensor, y: torch.Tensor | None, gallery_labels: torch.Tensor | None) -> Work:
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

    calculator = AccuracyCalculator(include=("r_precision", "mean_average_precision_at_r"), k="max_bin_count")
    if y is None:
        return lambda: calculator.get_accuracy(x, labels)
    return lambda: calculator.get_accuracy(x, labels, y, gallery_labels, ref_includes_query=False)


def works(rows: int, dim: int, noise: float, classes: int, queries: int | None = None) -> dict[str, Work]:
    """What is timed; `queries`: that many more rows against the others, or None for all against all."""
    x, all_labels = data(rows + (queries or 0), dim, classes, noise)
    labels, y, gallery_labels = torch.from_numpy(all_labels), None, None
    if queries is not None:
        x, y = x[:queries], x[queries:]
        labels, gallery_labels = labels[:queries], labels[queries:]

    def search(k: int) -> Work:
        return lambda: neighbors(x, y, k=k)

    def score(*metrics: str) -> Work:
        return lambda: evaluate(x, labels, y, gallery_labels, metrics)

    timed_calls = {f"neighbors {k}": search(k) for k in (1, 10)} | {
        f"recall@{k}": score(f"recall@{k}") for k in (1, 10)
    }
    timed_calls["ours"] = score("r-precision", "map@r")
    if len(x) * rows / classes * 20 < PEER_BYTES:
        timed_calls["peer"] = peer(x, labels, y, gallery_labels)
    return timed_calls


def timed(works: dict[str, Work], rounds: int) -> dict[str, float]:
    """Seconds of processor time, the minimum over rounds in which they take turns."""
    best = dict.fromkeys(works, float("inf"))
    for _ in range(rounds):
        for name, work in works.items():
            if LONG < best[name] < float("inf"):
                continue
            start = time.process_time()
            work()
            best[name] = min(best[name], time.process_time() - start)
    return best


def table(results: list[dict[str, Any]]) -> str:
    lines = [
        "| set | classes | recall@1 | x neighbors(1) | recall@10 | x neighbors(10) | R-precision, MAP@R "
        "| pytorch-metric-learning | kinfold / pytorch-metric-learning |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for r in results:
        s = r["seconds"]
        peer = f"{s['peer']:.3f} s | {s['ours'] / s['peer']:.2f}" if "peer" in s else "lists over 4 GB | "
        lines.append(
            f"| {r['set']} | {r['classes']:,} | {s['recall@1']:.3f} s | {s['recall@1'] / s['neighbors 1']:.2f} "
            f"| {s['recall@10']:.3f} s | {s['recall@10'] / s['neighbors 10']:.2f} | {s['ours']:.3f} s | {peer} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [*GRID, "gallery"]
    parser.add_argument("--sizes", nargs="*", default=names, choices=names, help=f"which of {', '.join(names)}")
    parser.add_argument("--classes", nargs="*", type=int, help="numbers of classes instead of those of the grid")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, default=Path("results/bench_evaluate_classes.json"))
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    results: list[dict[str, Any]] = []
    neighbors(torch.randn(100, 8), k=1)  # each process measures once which products are fast
    for name in arguments.sizes:
        rows, dim, noise = GRID.get(name, (GALLERY, 64, 1.4))
        queries = QUERIES if name == "gallery" else None
        title = f"{rows:,} x {dim}" if queries is None else f"{queries:,} against {rows:,} x {dim}"
        for classes in arguments.classes or sorted({*CLASSES, rows // 2}):
            seconds = timed(works(rows, dim, noise, classes, queries), arguments.rounds)
            results.append({"set": title, "classes": classes, "seconds": seconds})
            print(table(results[-1:]).splitlines()[-1], flush=True)
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps({"about": about(), "by_classes": results}, indent=1))
    print(f"\n{table(results)}\n\nwritten to {arguments.json}")


if __name__ == "__main__":
    main()
