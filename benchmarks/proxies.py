"""Measure losses with very many class vectors.

    python -m benchmarks.proxies                                   # 1,000,000 classes x 128, a batch of 512
    python -m benchmarks.proxies --only arcface --classes 100000
    python -m benchmarks.proxies --sampled                         # 10,000,000 classes x 64, Adam, one percent of them

Time is one forward and backward pass without the optimizer, as a multiple of the products that it needs if no tensor of
samples x classes is held: four for softmax losses (the logits twice, and two for the gradient), three for
proxy-anchor. The products run over chunks of classes; the size of a chunk is the fastest of several. Products and
losses take turns. With `--sampled` the peak memory of a new process is measured, class vectors and optimizer included.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import kinfold
from benchmarks.timing import about

NAMES = ["normalized-softmax", "softmax", "arcface", "cosface", "proxy-nca", "proxy-anchor"]
NAMES += ["soft-triple", "sub-center-arcface"]
CHUNKS = [512, 1024, 2048, 4096]

SAMPLED = """
import resource, sys, time
import torch, kinfold
classes, dim, batch, share, steps = (int(a) if a.isdigit() else float(a) for a in sys.argv[1:])
loss = kinfold.losses.create("arcface", num_classes=classes, dim=dim, class_share=share)
optimizer = kinfold.losses.update_rows(torch.optim.Adam(loss.parameters(), lr=1e-3))
generator = torch.Generator().manual_seed(0)
for step in range(steps):
    start = time.perf_counter()
    x = torch.randn(batch, dim, generator=generator).requires_grad_()
    labels = torch.randint(classes, (batch,), generator=generator)
    optimizer.zero_grad()
    loss(x, labels).backward()
    optimizer.step()
    seconds = time.perf_counter() - start
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"step {step + 1}: {seconds:.2f} s, peak memory {memory:.2f} GB", flush=True)
"""


def multiply(x: Tensor, vectors: Tensor, size: int, scores: int) -> None:
    """The products of a loss over chunks of classes, with the scores computed once or twice."""
    by_samples, by_vectors = torch.zeros_like(x), torch.empty_like(vectors)
    for part in torch.split(vectors, size) if scores == 2 else ():
        x @ part.T
    for part, gradient in zip(torch.split(vectors, size), torch.split(by_vectors, size), strict=True):
        chunk = x @ part.T
        by_samples.addmm_(chunk, part)
        torch.mm(chunk.T, x, out=gradient)


def take_time(work: Callable[[], None], clock: Callable[[], float]) -> float:
    start = clock()
    work()
    return clock() - start


def compare(
    name: str, classes: int, dim: int, samples: int, rounds: int, clock: Callable[[], float]
) -> dict[str, float]:
    """Return median seconds of products and loss, and the median, least and greatest ratio of one round."""
    generator = torch.Generator().manual_seed(0)
    loss = kinfold.losses.create(name, num_classes=classes, dim=dim)
    assert loss.proxies is not None
    x = torch.randn(samples, dim, generator=generator).requires_grad_()
    labels = torch.randint(classes, (samples,), generator=generator)

    def run() -> None:
        x.grad = None
        loss.zero_grad()
        loss(x, labels).backward()

    vectors, rows = loss.proxies.detach().flatten(0, -2), x.detach()
    scores = 1 if loss.proxies_are_anchors else 2
    probe = vectors[: max(CHUNKS) * 8]

    def probe_time(size: int) -> float:
        return min(take_time(lambda: multiply(rows, probe, size, scores), clock) for _ in range(3))

    size = min(CHUNKS, key=probe_time)
    run()
    times = []
    for _ in range(rounds):
        loss.zero_grad()
        times.append((take_time(lambda: multiply(rows, vectors, size, scores), clock), take_time(run, clock)))
    ratios = [seconds / products for products, seconds in times]
    return {
        "products": statistics.median(products for products, _ in times),
        "loss": statistics.median(seconds for _, seconds in times),
        "ratio": statistics.median(ratios),
        "least": min(ratios),
        "greatest": max(ratios),
    }


def table(results: dict[str, Any]) -> str:
    """Times of the products and of each loss."""
    size = f"{results['classes']:,} classes x {results['dim']}, a batch of {results['batch']}"
    lines = [f"| {size} | products | loss | ratio | least to greatest |", "|---|---:|---:|---:|---:|"]
    for name, row in results["class_vectors"].items():
        span = f"{row['least']:.2f} to {row['greatest']:.2f}"
        lines.append(f"| {name} | {row['products']:.2f} s | {row['loss']:.2f} s | {row['ratio']:.2f} | {span} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=NAMES, help="losses to measure")
    parser.add_argument("--classes", type=int, help="number of classes")
    parser.add_argument("--dim", type=int, help="dimension of the embeddings")
    parser.add_argument("--batch", type=int, default=512, help="samples in a batch")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of products and loss, or steps with --sampled")
    parser.add_argument("--sampled", action="store_true", help="training steps with a share of the classes")
    parser.add_argument("--share", type=float, default=0.01, help="the share of classes for --sampled")
    parser.add_argument("--json", type=Path, default=Path("results/bench_proxies.json"), help="where numbers go")
    parser.add_argument("--processor-time", action="store_true", help="processor time on one thread, not wall time")
    arguments = parser.parse_args()
    clock = time.process_time if arguments.processor_time else time.perf_counter
    if arguments.processor_time:
        torch.set_num_threads(1)
    if arguments.sampled:
        sizes = [arguments.classes or 10_000_000, arguments.dim or 64, arguments.batch, arguments.share]
        subprocess.run([sys.executable, "-c", SAMPLED, *map(str, [*sizes, arguments.rounds])], check=True)
        return
    classes, dim = arguments.classes or 1_000_000, arguments.dim or 128
    rows: dict[str, dict[str, float]] = {}
    results = {"about": {"clock": clock.__name__, **about()}, "classes": classes, "dim": dim}
    results |= {"batch": arguments.batch, "class_vectors": rows}
    for name in arguments.only:
        rows[name] = compare(name, classes, dim, arguments.batch, arguments.rounds, clock)
        lines = table({**results, "class_vectors": {name: rows[name]}}).splitlines()
        print("\n".join(lines if name == arguments.only[0] else lines[-1:]), flush=True)
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
