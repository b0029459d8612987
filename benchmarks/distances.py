"""Measure losses with each distance, in floors, and exact evaluation with each.

    python -m benchmarks.distances                        # some losses on pairs, 4096 x 128
    python -m benchmarks.distances --only triplet supcon
    python -m benchmarks.distances --evaluation           # exact evaluation, in multiples of that by cosine

One thread and processor time; each number is the median of five rounds in which all distances take turns with the floor
(normalize, one similarity matrix, the backward pass of its sum), with the smallest and the largest of them. Evaluation
takes turns with that by cosine in three rounds.
"""

import argparse
import statistics
from collections.abc import Callable
from typing import Any

import torch

import kinfold
from benchmarks import evaluate
from benchmarks.compiled_losses import ROUNDS, _time
from benchmarks.losses import floor
from kinfold.losses import Loss
from kinfold.pairs.distances import DISTANCES

BATCH, DIM, PER_CLASS = 4096, 128, 4
EVALUATED, EVALUATION_ROUNDS = ["cosine", "dot", "euclidean", "hyperbolic"], 3
LOSSES = ["contrastive", "triplet", "margin", "supcon", "multi-similarity"]


def make(name: str) -> dict[str, Loss]:
    """The loss with each distance that it takes."""
    losses = {}
    for distance in DISTANCES:
        if distance != "dot" or kinfold.losses.create(name).measure in ("cosine", "dot"):
            losses[distance] = kinfold.losses.create(name, distance=distance)
    return losses


def measure(name: str) -> dict[str, list[float]]:
    """Ratios to the floor by distance: median, smallest and largest."""
    x = torch.randn(BATCH, DIM, generator=torch.Generator().manual_seed(0)).requires_grad_()
    labels = torch.arange(BATCH) // PER_CLASS

    def step(loss: Loss) -> Callable[[], None]:
        def run() -> None:
            x.grad = None
            loss(x, labels).backward()

        return run

    works = {"floor": floor(x, None)} | {distance: step(loss) for distance, loss in make(name).items()}
    for work in works.values():
        work()
    rounds = []
    for _ in range(ROUNDS):
        times = {distance: _time(work) for distance, work in works.items()}
        rounds.append({distance: times[distance] / times["floor"] for distance in works if distance != "floor"})
    ratios = {distance: sorted(part[distance] for part in rounds) for distance in rounds[0]}
    return {distance: [statistics.median(values), values[0], values[-1]] for distance, values in ratios.items()}


def measure_evaluation(size: str) -> tuple[float, dict[str, list[float]]]:
    """Seconds of an exact evaluation by cosine, and by distance the ratio to it: median, smallest and largest."""
    rows, dim, classes, noise = evaluate.SIZES[size]
    x, labels = evaluate.data(rows, dim, classes, noise)

    def step(distance: Any) -> Callable[[], None]:
        def run() -> None:
            kinfold.metrics.evaluate(x, labels, distance=distance)

        return run

    works = {distance: step(distance) for distance in EVALUATED}
    rounds = []
    for _ in range(EVALUATION_ROUNDS):
        rounds.append({distance: _time(work) for distance, work in works.items()})
    ratios = {distance: sorted(times[distance] / times["cosine"] for times in rounds) for distance in EVALUATED}
    return min(times["cosine"] for times in rounds), {
        distance: [statistics.median(values), values[0], values[-1]] for distance, values in ratios.items()
    }


def print_evaluation() -> None:
    """A row for each size."""
    print("| rows | cosine | " + " | ".join(EVALUATED[1:]) + " |\n" + "|---" * (len(EVALUATED) + 1) + "|")
    for size, (rows, dim, *_) in evaluate.SIZES.items():
        seconds, ratios = measure_evaluation(size)
        cells = [format_ratio(ratios[distance]) for distance in EVALUATED[1:]]
        print(f"| {rows:,} x {dim} | {seconds:.1f} s | " + " | ".join(cells) + " |", flush=True)


def format_ratio(ratio: list[float]) -> str:
    """The median, with the smallest and the largest in brackets."""
    return f"{ratio[0]:.2f} ({ratio[1]:.2f}-{ratio[2]:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=LOSSES, help="losses to measure")
    parser.add_argument("--evaluation", action="store_true", help="exact evaluation instead of losses")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.evaluation:
        print_evaluation()
        return
    print("| loss | " + " | ".join(DISTANCES) + " |\n" + "|---" * (len(DISTANCES) + 1) + "|")
    for name in options.only:
        ratios = measure(name)
        cells = [format_ratio(ratios[distance]) if distance in ratios else "" for distance in DISTANCES]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
