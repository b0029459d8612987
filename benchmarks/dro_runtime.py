"""The runtime figure of the DRO paper as a table: robust losses against mining, at growing batches.

    python -m benchmarks.dro_runtime
    python -m benchmarks.dro_runtime --processor-time     # on a machine that has other work to do: one thread

Ratios to the floor (normalize, one similarity matrix, backward of its sum), all taking turns in one run.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import kinfold
from benchmarks import catalog
from benchmarks.losses import floor
from benchmarks.timing import about, interleaved
from kinfold.losses import Mined

BATCHES, DIM, PER_CLASS = (80, 160, 320, 480, 640), 1024, 5


def losses() -> dict[str, Any]:
    margin = "similarity-margin"
    return {
        "dro-topk": kinfold.losses.create("dro-topk", k="2b"),
        "dro-topk-pn": kinfold.losses.create("dro-topk-pn", k="2b"),
        "dro-kl": kinfold.losses.create("dro-kl", gamma=0.1),
        "lifted": kinfold.losses.create("lifted"),
        "multi-similarity": kinfold.losses.create("multi-similarity"),
        f"{margin} + semihard-pairs": Mined(kinfold.losses.create(margin), kinfold.miners.create("semihard-pairs")),
        f"{margin} + distance-weighted-pairs": Mined(
            kinfold.losses.create(margin), kinfold.miners.create("distance-weighted-pairs")
        ),
    }


def measure(seconds: float, processor_time: bool = False) -> dict[str, dict[int, float]]:
    """Time of each loss over that of the floor, by batch size; wall time, or that of the processor."""
    ratios: dict[str, dict[int, float]] = {name: {} for name in losses()}
    for batch in BATCHES:
        x = torch.randn(batch, DIM, generator=torch.Generator().manual_seed(0)).requires_grad_()
        y = torch.arange(batch) // PER_CLASS

        def step(loss: Any, x: torch.Tensor = x, y: torch.Tensor = y) -> Callable[[], None]:
            def run() -> None:
                x.grad = None
                loss(x, y).backward()

            return run

        works = {"floor": floor(x, None)} | {name: step(loss) for name, loss in losses().items()}
        best = catalog.interleaved(works, seconds) if processor_time else interleaved(works, seconds, most=400)
        for name in ratios:
            ratios[name][batch] = best[name] / best["floor"]
    return ratios


def table(ratios_by_loss: dict[str, dict[int, float]]) -> str:
    head = "| loss | " + " | ".join(f"B = {batch}" for batch in BATCHES) + " |"
    rows = [
        f"| {name} | " + " | ".join(f"{ratios[b]:.2f}" for b in BATCHES) + " |"
        for name, ratios in ratios_by_loss.items()
    ]
    return "\n".join([head, "|---" * (len(BATCHES) + 1) + "|", *rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=4.0, help="time for each batch size")
    parser.add_argument("--processor-time", action="store_true", help="processor time on one thread, not wall time")
    parser.add_argument("--json", type=Path, default=Path("results/bench_runtime.json"), help="where the numbers go")
    arguments = parser.parse_args()
    if arguments.processor_time:
        torch.set_num_threads(1)
    ratios = measure(arguments.seconds, arguments.processor_time)
    clock = "processor time" if arguments.processor_time else "wall time"
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps({"about": {"clock": clock, **about()}, "runtime": ratios}, indent=1))
    print(table(ratios))


if __name__ == "__main__":
    main()
