"""The libraries that are compared, and how each computes a loss."""

import json
import subprocess
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

ROOT = Path(__file__).parents[2]
OURS, PML, OML = "kinfold", "pytorch-metric-learning", "open-metric-learning"
PACKAGES = {OURS: "kinfold", PML: "pytorch_metric_learning", OML: "oml"}
Size = tuple[int, int, int]  # batch, dimension, items of a class
SIZES: list[Size] = [(128, 512, 4), (640, 1024, 5)]
# the one name that open-metric-learning's losses import from torchvision, whose own library does not load beside every
# build of torch; nothing measured here runs a line of it
STAND_IN = """import sys, types
for name in ("torchvision", "torchvision.ops"): sys.modules[name] = types.ModuleType(name)
sys.modules["torchvision.ops"].MLP = None
"""
IMPORTS = {
    OURS: "import kinfold; kinfold.losses.create('triplet')",
    PML: "from pytorch_metric_learning import losses; losses.TripletMarginLoss()",
    OML: STAND_IN + "from oml.losses import TripletLossWithMiner; TripletLossWithMiner(margin=0.2)",
}
Step = Callable[[Tensor, Tensor], Tensor]


def subject(library: str, name: str) -> tuple[Step, nn.Module] | None:
    """How a library computes a loss from embeddings and labels, and its module; None where it has no such loss."""
    if library == OURS:
        import kinfold

        ours: nn.Module = kinfold.losses.create(name)
        return ours, ours
    if library == OML:
        exec(STAND_IN)
        peer: nn.Module = import_module("oml.losses").TripletLossWithMiner(margin=0.2)
        return (peer, peer) if name == "triplet" else None
    from pytorch_metric_learning import losses, miners

    if name == "multi-similarity":  # ours mines by itself
        similarity, miner = losses.MultiSimilarityLoss(), miners.MultiSimilarityMiner()
        return lambda x, y: similarity(x, y, miner(x, y)), similarity
    module: nn.Module = {"contrastive": losses.ContrastiveLoss, "triplet": losses.TripletMarginLoss}[name]()
    return module, module


def batch(size: Size, classes: int | None = None) -> tuple[Tensor, Tensor]:
    rows, dim, per_class = size
    x = torch.randn(rows, dim, generator=torch.Generator().manual_seed(0)).requires_grad_()
    return x, torch.arange(rows) // per_class % (classes or rows)


def turns(works: dict[str, Callable[[], Any]], seconds: float, least: int = 5) -> dict[str, float]:
    """Seconds of the processor for one call of each, the minimum over rounds in which they take turns."""
    best, spent, rounds = dict.fromkeys(works, float("inf")), 0.0, 0
    while rounds < least or (spent < seconds and rounds < 60):
        for name, work in works.items():
            begin = time.process_time()
            work()
            took = time.process_time() - begin
            best[name], spent = min(best[name], took), spent + took
        rounds += 1
    return best


def child(python: Path | str, what: str, argument: str) -> Any:
    """Run a part of the comparison in another interpreter, which may have another library, and return its result."""
    command = [str(python), "-m", "benchmarks.comparison", "--child", what, argument]
    process = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{process.stderr}")
    return json.loads(process.stdout.splitlines()[-1])
