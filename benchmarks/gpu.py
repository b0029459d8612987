"""Correctness, time and memory on a GPU, as one JSON file to send back; about 15 minutes.

python -m benchmarks.gpu                       # CUDA or MPS, whichever there is
python -m benchmarks.gpu --device cpu --sizes tiny --out results/gpu/cpu.json
python -m benchmarks.gpu_page results/gpu      # a page of all files in the folder
"""

import argparse
import inspect
import json
import platform
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from torch import nn

import kinfold
from benchmarks.timing import peak_bytes
from kinfold.data import Batch
from kinfold.devices import describe_device, resolve_device, synchronize
from kinfold.testing import check_loss
from kinfold.training import Objective, Step

SCHEMA, VERSION = "kinfold-gpu-bench", 1
SIZES: dict[str, dict[str, Any]] = {
    "full": {"losses": [(128, 128), (1024, 128), (4096, 128)], "items": 20_000, "rounds": 20, "images": (64, 224)},
    "tiny": {"losses": [(16, 8)], "items": 64, "rounds": 2, "images": (8, 32)},
}
# name here, class of pytorch-metric-learning
PEERS = {
    "contrastive": "ContrastiveLoss",
    "triplet": "TripletMarginLoss",
    "multi-similarity": "MultiSimilarityLoss",
    "nt-xent": "NTXentLoss",
    "supcon": "SupConLoss",
    "circle": "CircleLoss",
    "proxy-anchor": "ProxyAnchorLoss",
    "arcface": "ArcFaceLoss",
}
METRICS = ["recall@1", "r-precision", "map@r"]


def describe(device: torch.device) -> dict[str, Any]:
    """Versions and hardware; nothing that identifies the person or the machine."""
    memory = torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else None
    packages = ("kinfold", "torch", "numpy", "pytorch-metric-learning", "faiss-cpu", "faiss-gpu")
    versions = {}
    for package in packages:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return {
        "device": describe_device(device),
        "memory_bytes": memory,
        "cuda": torch.version.cuda,
        "versions": versions,
        "python": platform.python_version(),
        "system": platform.system(),
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
    }


def check(device: torch.device) -> Iterator[dict[str, str]]:
    """Compare every loss, miner and metric, `neighbors` and a training step on the device with the CPU."""
    for name in kinfold.list("losses"):
        loss = kinfold.losses.create(name, **({"num_classes": 16, "dim": 16} if _has_class_vectors(name) else {}))
        finding = check_loss(loss, checks=["second device"], device=device, name=name)["second device"]
        yield {"name": f"loss {name}", "status": finding.status, "message": finding.message}
    dtype = torch.float32 if device.type == "mps" else torch.float64  # Metal has no float64
    x = torch.randn(48, 16, generator=torch.Generator().manual_seed(0), dtype=dtype)
    y = torch.arange(48) // 6
    for name in kinfold.list("miners"):
        yield _compare(f"miner {name}", partial(_mine, name, x, y), partial(_mine, name, x.to(device), y.to(device)))
    cpu = torch.device("cpu")

    def measure(where: torch.device) -> list[torch.Tensor]:
        names = ["recall@1", "r-precision", "map@r", "mrr", "roc-auc", "uniformity"]
        return [torch.tensor([*kinfold.metrics.evaluate(x, y, metrics=names, device=where).values()])]

    yield _compare("evaluate", lambda: measure(cpu), lambda: measure(device))
    yield _compare(
        "neighbors",
        lambda: [*kinfold.metrics.neighbors(x, k=5)],
        lambda: [*kinfold.metrics.neighbors(x.to(device), k=5)],
    )
    for precision, tolerance in (("float32", 1e-4), ("bfloat16", 0.1)):
        name = f"training step {precision}"
        yield _compare(name, partial(_step, x, y, cpu, precision), partial(_step, x, y, device, precision), tolerance)


def _mine(name: str, x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    return [part for part in vars(kinfold.miners.create(name)(x, y)).values() if isinstance(part, torch.Tensor)]


def _step(x: torch.Tensor, y: torch.Tensor, device: torch.device, precision: str) -> list[torch.Tensor]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Linear(16, 8).to(device)
    objective = Objective(kinfold.losses.create("multi-similarity")).to(device)
    Step(model, objective, device=device, precision=precision)(Batch(x.float(), y, torch.arange(len(x))), 0)
    assert model.weight.grad is not None
    return [model.weight.grad]


def _has_class_vectors(loss: str) -> bool:
    return "dim" in inspect.signature(kinfold.registry.resolve("losses", loss)).parameters


def _compare(
    name: str,
    expected: Callable[[], list[torch.Tensor]],
    actual: Callable[[], list[torch.Tensor]],
    tolerance: float = 1e-6,
) -> dict[str, str]:
    try:
        for first, second in zip(expected(), actual(), strict=True):
            torch.testing.assert_close(second.cpu(), first.cpu(), rtol=tolerance, atol=tolerance)
    except Exception as error:  # whatever a device raises belongs into the report
        return {"name": name, "status": "fails", "message": f"{type(error).__name__}: {error}".splitlines()[0]}
    return {"name": name, "status": "holds", "message": ""}


def measure_call(work: Callable[[], Any], device: torch.device, rounds: int) -> dict[str, Any]:
    """Median seconds of a call and the peak of memory; an error, such as too little memory, instead of numbers."""
    try:
        work()
        seconds = []
        for _ in range(rounds):
            synchronize(device)
            start = time.perf_counter()
            work()
            synchronize(device)
            seconds.append(time.perf_counter() - start)
        peak: int | None = None
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            before = torch.cuda.memory_allocated(device)
            work()
            synchronize(device)
            peak = torch.cuda.max_memory_allocated(device) - before
        elif device.type == "cpu":
            peak = peak_bytes(work)
    except (RuntimeError, ValueError, ImportError, NotImplementedError) as error:  # out of memory is a RuntimeError
        return {"error": f"{type(error).__name__}: {error}".splitlines()[0][:200]}
    return {"seconds": sorted(seconds)[len(seconds) // 2], "bytes": peak}


def measure_losses(device: torch.device, sizes: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Value and gradient of every loss, beside that of pytorch-metric-learning where it has it."""
    peers = _import_peer("losses")
    for batch, dim in sizes["losses"]:
        x = torch.randn(batch, dim, generator=torch.Generator().manual_seed(1)).to(device)
        y = (torch.arange(batch) // 4).to(device)
        for name in kinfold.list("losses"):
            options = {"num_classes": batch // 4, "dim": dim} if _has_class_vectors(name) else {}
            loss = kinfold.losses.create(name, **options).to(device)
            row: dict[str, Any] = {"loss": name, "batch": batch, "dim": dim}
            row["kinfold"] = measure_call(partial(_differentiate, loss, x, y), device, sizes["rounds"])
            if name in PEERS and peers is not None:
                arguments = {"num_classes": batch // 4, "embedding_size": dim} if options else {}
                peer = getattr(peers, PEERS[name])(**arguments).to(device)
                row["pytorch-metric-learning"] = measure_call(
                    partial(_differentiate, peer, x, y), device, sizes["rounds"]
                )
            yield row


def measure_evaluation(device: torch.device, sizes: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Recall@1, R-precision and MAP@R of random embeddings."""
    x = torch.randn(sizes["items"], 128, generator=torch.Generator().manual_seed(2))
    y = torch.arange(len(x)) // 8
    row: dict[str, Any] = {"items": len(x), "dim": 128}
    row["kinfold"] = measure_call(
        lambda: kinfold.metrics.evaluate(x.to(device), y, metrics=METRICS, device=device), device, 2
    )
    calculators = _import_peer("utils.accuracy_calculator")
    if calculators is not None:
        include = ("precision_at_1", "r_precision", "mean_average_precision_at_r")
        row["pytorch-metric-learning"] = measure_call(
            lambda: calculators.AccuracyCalculator(include=include, device=device).get_accuracy(x.to(device), y),
            device,
            2,
        )
    yield row


def measure_training(device: torch.device, sizes: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """One step of a small network with multi-similarity, beside a plain loop with the loss of the peer."""
    peers = _import_peer("losses")
    count, width = sizes["images"]
    images, y = (
        torch.randn(count, 1, width, width, generator=torch.Generator().manual_seed(3)),
        torch.arange(count) // 4,
    )
    batch = Batch(images, y, torch.arange(count))
    peer = None if peers is None else peers.MultiSimilarityLoss()
    for precision in ("float32", "bfloat16"):
        row: dict[str, Any] = {"backbone": "conv4", "images": count, "pixels": width, "precision": precision}
        model = kinfold.models.create("conv4", dim=64).to(device)
        optimizer = torch.optim.AdamW(model.parameters())
        step = Step(
            model, Objective(kinfold.losses.create("multi-similarity")).to(device), device=device, precision=precision
        )

        def train(step: Step = step, optimizer: torch.optim.Optimizer = optimizer) -> None:
            optimizer.zero_grad()
            step(batch, 0)
            optimizer.step()

        row["kinfold"] = measure_call(train, device, sizes["rounds"])
        if peer is not None:
            plain = kinfold.models.create("conv4", dim=64).to(device)
            sgd = torch.optim.AdamW(plain.parameters())

            def loop(plain: nn.Module = plain, sgd: torch.optim.Optimizer = sgd, precision: str = precision) -> None:
                sgd.zero_grad()
                with torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bfloat16"):
                    value = peer(plain(images.to(device)), y.to(device))
                value.backward()
                sgd.step()
                value.item()

            row["pytorch-metric-learning"] = measure_call(loop, device, sizes["rounds"])
        yield row


def _differentiate(loss: nn.Module, x: torch.Tensor, y: torch.Tensor) -> None:
    leaf = x.detach().requires_grad_()
    loss(leaf, y).backward()


def _import_peer(module: str) -> Any:
    try:
        return __import__(f"pytorch_metric_learning.{module}", fromlist=["_"])
    except ImportError:
        return None


def run(device: torch.device, size: str, minutes: float, report: Callable[[str], object] = print) -> dict[str, Any]:
    """Return the results; parts that the time does not allow are left out and named in "left_out"."""
    start, sizes = time.monotonic(), SIZES[size]
    results: dict[str, Any] = {
        "schema": SCHEMA,
        "version": VERSION,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "sizes": size,
        "environment": describe(device),
        "left_out": [],
    }
    parts: dict[str, Iterator[dict[str, Any]]] = {
        "correctness": iter(check(device)),
        "evaluation": measure_evaluation(device, sizes),
        "training": measure_training(device, sizes),
        "losses": measure_losses(device, sizes),
    }
    for part, rows in parts.items():
        results[part] = []
        for row in rows:
            results[part].append(row)
            if time.monotonic() - start > 60 * minutes:
                results["left_out"].append(f"rest of {part}")
                break
        report(f"{part}: {len(results[part])} rows, {time.monotonic() - start:.0f} s")
    results["seconds"] = time.monotonic() - start
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", help="cuda, mps, cpu, or second for the test device; by default a GPU")
    parser.add_argument("--sizes", choices=[*SIZES], default="full")
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--out", type=Path, default=Path("results/gpu/gpu.json"))
    options = parser.parse_args()
    name = options.device
    if name is None:
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else None
    if name is None:
        parser.error("there is no GPU here; --device cpu --sizes tiny shows what is measured")
    if name == "second":
        from kinfold.testing import load_second_device

        device = load_second_device()
    else:
        device = resolve_device(name)
    results = run(device, options.sizes, options.minutes)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(results, indent=1) + "\n")
    failures = [row["name"] for row in results["correctness"] if row["status"] == "fails"]
    print(f"wrote {options.out}; {len(failures)} checks fail{': ' + ', '.join(failures) if failures else ''}")


if __name__ == "__main__":
    main()
