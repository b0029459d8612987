"""Measure every miner, uncertainty set, metric and backbone against the floor of the same run.

    python -m benchmarks.catalog                    # all of it: about five minutes
    python -m benchmarks.catalog --only miners

Miners and sets: the floor is the least work of a loss on pairs, as for the losses: normalize, one similarity matrix,
the backward pass of its sum. Metrics: the floor is the float32 product of all pairs, as for evaluation; every metric is
computed alone. Backbones: images per second of a forward pass. All times are processor times on one thread, because
other work on the machine changes them little. Each is the minimum over rounds in which all take turns.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import kinfold
from benchmarks import evaluate as evaluation
from benchmarks.losses import SIZES, floor
from benchmarks.timing import about

NUMBERS = {
    "recall@k": "recall@1",
    "precision@k": "precision@10",
    "map@k": "map@10",
    "rho@k": "rho@2",
    "tar@far=x": "tar@far=0.001",
    "threshold@far=x": "threshold@far=0.001",
    "dir@far=x": "dir@far=0.01",
}
# rows, dimension, classes, noise: as the test classes of CUB
SPACES = {"5,924 x 512, 100 classes": (5_924, 512, 100, 3.5)}
PICTURES = {
    "conv4": (128, 1, 28),
    "efficientnet-lite0": (8, 3, 224),
    "resnet50": (8, 3, 224),
    "bn-inception": (8, 3, 227),
}
SETS: dict[str, dict[str, Any]] = {
    "top-k": {"k": 1280},
    "kl": {"gamma": 0.1},
    "kl-ball": {"effective": 2560},
    "chi-square": {"effective": 2560},
    "trim": {"k": 1280},
    "optimistic-kl": {"gamma": 0.1},
}
Ratios = dict[str, dict[str, float]]


def interleaved(works: dict[str, Callable[[], None]], seconds: float, least: int = 3) -> dict[str, float]:
    """Processor seconds of one call of each, the minimum over rounds in which they take turns."""
    best = dict.fromkeys(works, float("inf"))
    for work in works.values():
        work()  # warm up
    start, rounds = time.process_time(), 0
    while rounds < least or time.process_time() - start < seconds:
        for name, work in works.items():
            begin = time.process_time()
            work()
            best[name] = min(best[name], time.process_time() - begin)
        rounds += 1
    return best


def miners(seconds: float) -> Ratios:
    """Time of one call over that of the floor, by size of the batch."""
    ratios: Ratios = {name: {} for name in kinfold.list("miners")}
    for batch, dim, per_class in SIZES:
        x = torch.randn(batch, dim, generator=torch.Generator().manual_seed(0)).requires_grad_()
        y = torch.arange(batch) // per_class
        works: dict[str, Callable[[], None]] = {"floor": floor(x, None)}
        works |= {name: _call(kinfold.miners.create(name), x, y) for name in ratios}
        _add_ratios(ratios, f"{batch} x {dim}", interleaved(works, seconds))
    return ratios


def sets(seconds: float) -> Ratios:
    """Time of the weights of all B x B losses over that of the floor, as one group and as one for each anchor."""
    batch, dim, _ = SIZES[1]
    x = torch.randn(batch, dim, generator=torch.Generator().manual_seed(0)).requires_grad_()
    losses = torch.rand(batch, batch, generator=torch.Generator().manual_seed(1))
    mask = ~torch.eye(batch, dtype=torch.bool)
    ratios: Ratios = {name: {} for name in kinfold.list("sets")}
    for title, shape in (("one group", (-1,)), ("a group per anchor", (batch, batch))):
        works: dict[str, Callable[[], None]] = {"floor": floor(x, None)}
        for name in ratios:
            options = dict(SETS.get(name, {}))
            if title != "one group":  # of a row rather than of the whole matrix
                options |= {key: 4 for key in options if key != "gamma"}
            chosen = kinfold.registry.create("sets", name, **options)
            works[name] = _call(chosen.weights, losses.reshape(shape), mask.reshape(shape))
        _add_ratios(ratios, title, interleaved(works, seconds))
    return ratios


def metrics(seconds: float) -> Ratios:
    """Time of each metric asked for alone over that of the product of all pairs."""
    ratios: Ratios = {name: {} for name in kinfold.list("metrics")}
    for title, space in SPACES.items():
        x, labels = evaluation.data(*space)
        coarse = labels % 12
        product = evaluation.floor(x, x)
        works: dict[str, Callable[[], None]] = {"floor": _run_product(product)}
        for name in ratios:
            works[name] = _evaluate(x, labels, coarse, NUMBERS.get(name, name))
        _add_ratios(ratios, title, interleaved(works, seconds, least=2))
    return ratios


def backbones(seconds: float) -> Ratios:
    """Images a second of one forward pass without a gradient."""
    works: dict[str, Callable[[], None]] = {}
    for name, (count, channels, side) in PICTURES.items():
        model = kinfold.models.create(name, seed=0).eval()
        works[name] = _forward(model, torch.rand(count, channels, side, side))
    best = interleaved(works, seconds)
    return {name: {"size": PICTURES[name][2], "images a second": PICTURES[name][0] / best[name]} for name in PICTURES}


def _call(work: Callable[..., object], *arguments: object) -> Callable[[], None]:
    return lambda: _discard(work(*arguments))


def _evaluate(x: torch.Tensor, labels: Any, coarse: Any, name: str) -> Callable[[], None]:
    options = {"coarse_labels": coarse} if name.endswith("-coarse") else {}
    return lambda: _discard(kinfold.metrics.evaluate(x, labels, metrics=[name], **options))


def _run_product(product: Callable[[], object]) -> Callable[[], None]:
    return lambda: _discard(product())


def _forward(model: torch.nn.Module, images: torch.Tensor) -> Callable[[], None]:
    def run() -> None:
        with torch.no_grad():
            model(images)

    return run


def _discard(_: object) -> None:
    return None


def _add_ratios(ratios: Ratios, title: str, best: dict[str, float]) -> None:
    for name in ratios:
        ratios[name][title] = best[name] / best["floor"]
    print(title, {name: round(entry[title], 2) for name, entry in ratios.items()}, flush=True)


def table(kind: str, values: Ratios) -> str:
    columns = [*next(iter(values.values()))]
    if kind == "backbones":
        rows = [f"| `{n}` | {v['size']:.0f} | {v['images a second']:.0f} |" for n, v in values.items()]
        return "\n".join(["| backbone | pixels | images a second |", "|---|---|---|", *rows])
    metrics_used = {name: NUMBERS.get(name, name) if kind == "metrics" else name for name in values}
    measured = {name: f" ({metrics_used[name]})" if metrics_used[name] != name else "" for name in values}
    rows = [f"| `{n}`{measured[n]} | " + " | ".join(f"{v[c]:.2f}" for c in columns) + " |" for n, v in values.items()]
    return "\n".join(
        [f"| {kind[:-1]}, x floor | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|", *rows]
    )


KINDS = {"miners": miners, "sets": sets, "metrics": metrics, "backbones": backbones}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[*KINDS], choices=[*KINDS])
    parser.add_argument("--seconds", type=float, default=5.0, help="processor time for each column, at least")
    parser.add_argument("--json", type=Path, default=Path("results/bench_catalog.json"), help="where the numbers go")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    results: dict[str, Ratios] = {}
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    for kind in arguments.only:
        results[kind] = KINDS[kind](arguments.seconds)
        print(table(kind, results[kind]), flush=True)
        arguments.json.write_text(json.dumps({"about": about(), "catalog": results}, indent=1))
    print(f"written to {arguments.json}")


if __name__ == "__main__":
    main()
