"""Measure losses with each distance, in floors.

    python -m benchmarks.distances                        # some losses on pairs, 4096 x 128
    python -m benchmarks.distances --only triplet supcon

One thread and processor time; each number is the median of five rounds in which all distances take turns with the floor
(normalize, one similarity matrix, the backward pass of its sum), with the smallest and the largest of them.
"""

import argparse
import statistics
from collections.abc import Callable

import torch

import kinfold
from benchmarks.compiled_losses import ROUNDS, _time
from benchmarks.losses import floor
from kinfold.losses import Loss
from kinfold.pairs.distances import DISTANCES

BATCH, DIM, PER_CLASS = 4096, 128, 4
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=LOSSES, help="losses to measure")
    torch.set_num_threads(1)
    print("| loss | " + " | ".join(DISTANCES) + " |\n" + "|---" * (len(DISTANCES) + 1) + "|")
    for name in parser.parse_args().only:
        ratios = measure(name)
        cells = [
            f"{ratios[d][0]:.2f} ({ratios[d][1]:.2f}-{ratios[d][2]:.2f})" if d in ratios else "" for d in DISTANCES
        ]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
