"""What every miner, uncertainty set, metric and backbone costs, each against the floor of the same run.

    python -m benchmarks.catalogue                    # all of it: about five minutes
    python -m benchmarks.catalogue --only miners

Miners and sets: the floor is what no loss on pairs can do without, as for the losses: normalise, one similarity matrix,
the backward pass of its sum. Metrics: the floor is the float32 product of all pairs, as for evaluation; every metric is
asked for alone. Backbones: images a second of a forward pass. All on one thread, in processor time, which other work on
the machine disturbs little; minima of rounds that take turns.
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

NUMBERS = {"recall@k": "recall@1", "precision@k": "precision@10", "rho@k": "rho@2", "tar@far=x": "tar@far=0.001"}
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
}
Found = dict[str, dict[str, float]]


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


def miners(seconds: float) -> Found:
    """Time of one call over that of the floor, by size of the batch."""
    found: Found = {name: {} for name in kinfold.list("miners")}
    for batch, dim, per_class in SIZES:
        x = torch.randn(batch, dim, generator=torch.Generator().manual_seed(0)).requires_grad_()
        y = torch.arange(batch) // per_class
        works: dict[str, Callable[[], None]] = {"floor": floor(x, None)}
        works |= {name: _call(kinfold.miners.create(name), x, y) for name in found}
        _ratios(found, f"{batch} x {dim}", interleaved(works, seconds))
    return found


def sets(seconds: float) -> Found:
    """Time of the weights of all B x B losses over that of the floor, as one group and as one for each anchor."""
    batch, dim, _ = SIZES[1]
    x = torch.randn(batch, dim, generator=torch.Generator().manual_seed(0)).requires_grad_()
    losses = torch.rand(batch, batch, generator=torch.Generator().manual_seed(1))
    mask = ~torch.eye(batch, dtype=torch.bool)
    found: Found = {name: {} for name in kinfold.list("sets")}
    for title, shape in (("one group", (-1,)), ("a group per anchor", (batch, batch))):
        works: dict[str, Callable[[], None]] = {"floor": floor(x, None)}
        for name in found:
            options = dict(SETS.get(name, {}))
            if title != "one group":  # of a row rather than of the whole matrix
                options |= {key: 4 for key in options if key != "gamma"}
            chosen = kinfold.registry.create("sets", name, **options)
            works[name] = _call(chosen.weights, losses.reshape(shape), mask.reshape(shape))
        _ratios(found, title, interleaved(works, seconds))
    return found


def metrics(seconds: float) -> Found:
    """Time of each metric asked for alone over that of the product of all pairs."""
    found: Found = {name: {} for name in kinfold.list("metrics")}
    for title, space in SPACES.items():
        x, labels = evaluation.data(*space)
        coarse = labels % 12
        product = evaluation.floor(x, x)
        works: dict[str, Callable[[], None]] = {"floor": _product(product)}
        for name in found:
            works[name] = _evaluated(x, labels, coarse, NUMBERS.get(name, name))
        _ratios(found, title, interleaved(works, seconds, least=2))
    return found


def backbones(seconds: float) -> Found:
    """Images a second of one forward pass without a gradient."""
    works: dict[str, Callable[[], None]] = {}
    for name, (count, channels, side) in PICTURES.items():
        model = kinfold.models.create(name, seed=0).eval()
        works[name] = _forward(model, torch.rand(count, channels, side, side))
    best = interleaved(works, seconds)
    return {name: {"size": PICTURES[name][2], "images a second": PICTURES[name][0] / best[name]} for name in PICTURES}


def _call(work: Callable[..., object], *given: object) -> Callable[[], None]:
    return lambda: _done(work(*given))


def _evaluated(x: torch.Tensor, labels: Any, coarse: Any, name: str) -> Callable[[], None]:
    asked = {"coarse_labels": coarse} if name.endswith("-coarse") else {}
    return lambda: _done(kinfold.metrics.evaluate(x, labels, metrics=[name], **asked))


def _product(product: Callable[[], object]) -> Callable[[], None]:
    return lambda: _done(product())


def _forward(model: torch.nn.Module, images: torch.Tensor) -> Callable[[], None]:
    def run() -> None:
        with torch.no_grad():
            model(images)

    return run


def _done(_: object) -> None:
    return None


def _ratios(found: Found, title: str, best: dict[str, float]) -> None:
    for name in found:
        found[name][title] = best[name] / best["floor"]
    print(title, {name: round(entry[title], 2) for name, entry in found.items()}, flush=True)


def table(kind: str, found: Found) -> str:
    columns = [*next(iter(found.values()))]
    if kind == "backbones":
        rows = [f"| `{n}` | {v['size']:.0f} | {v['images a second']:.0f} |" for n, v in found.items()]
        return "\n".join(["| backbone | pixels | images a second |", "|---|---|---|", *rows])
    told = {name: NUMBERS.get(name, name) if kind == "metrics" else name for name in found}
    measured = {name: f" ({told[name]})" if told[name] != name else "" for name in found}
    rows = [f"| `{n}`{measured[n]} | " + " | ".join(f"{v[c]:.2f}" for c in columns) + " |" for n, v in found.items()]
    return "\n".join(
        [f"| {kind[:-1]}, x floor | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|", *rows]
    )


KINDS = {"miners": miners, "sets": sets, "metrics": metrics, "backbones": backbones}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[*KINDS], choices=[*KINDS])
    parser.add_argument("--seconds", type=float, default=5.0, help="processor time for each column, at least")
    parser.add_argument("--json", type=Path, default=Path("results/bench_catalogue.json"), help="where the numbers go")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[str, Found] = {}
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    for kind in arguments.only:
        found[kind] = KINDS[kind](arguments.seconds)
        print(table(kind, found[kind]), flush=True)
        arguments.json.write_text(json.dumps({"about": about(), "catalogue": found}, indent=1))
    print(f"written to {arguments.json}")


if __name__ == "__main__":
    main()
