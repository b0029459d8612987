"""The same losses in the installed pytorch-metric-learning, run first in a process of their own with a limit on time
and memory: some of them would otherwise take the machine down.

    python -m benchmarks.peer 640 1024 5 lifted nt-xent     # seconds of one step each, one JSON line per loss
"""

import json
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch

MEMORY_LIMIT, TIME_LIMIT = 8 * 2**30, 60.0
Step = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def peers(num_classes: int, dim: int) -> dict[str, Callable[[], Any]]:
    """Makers of the peer's losses by our names, with our settings where it has the same ones.

    Its n-pair loss takes one anchor and one positive of each class, ours every item: they are not the same work.
    """
    from pytorch_metric_learning import distances, losses, miners

    def mined(loss: Any, miner: Any) -> Step:
        return lambda x, y: loss(x, y, miner(x, y))

    def owning(kind: str, **options: Any) -> Callable[[], Any]:
        return lambda: getattr(losses, kind)(num_classes=num_classes, embedding_size=dim, **options)

    makers: dict[str, Callable[[], Any]] = {
        "contrastive": lambda: losses.ContrastiveLoss(pos_margin=0, neg_margin=1),
        "contrastive + distance-weighted": lambda: mined(losses.ContrastiveLoss(), miners.DistanceWeightedMiner()),
        "triplet": lambda: losses.TripletMarginLoss(margin=0.2, distance=distances.LpDistance(power=2)),
        "triplet + semihard": lambda: mined(
            losses.TripletMarginLoss(margin=0.2), miners.TripletMarginMiner(margin=0.2, type_of_triplets="semihard")
        ),
        "margin": lambda: losses.MarginLoss(margin=0.2, beta=1.2),
        "margin + distance-weighted": lambda: mined(losses.MarginLoss(), miners.DistanceWeightedMiner()),
        "lifted (oh-song)": lambda: losses.LiftedStructureLoss(neg_margin=1, pos_margin=0),
        "generalized-lifted": lambda: losses.GeneralizedLiftedStructureLoss(neg_margin=1, pos_margin=0),
        "angular": lambda: losses.AngularLoss(alpha=45),
        "histogram": lambda: losses.HistogramLoss(n_bins=64),
        "multi-similarity": lambda: mined(
            losses.MultiSimilarityLoss(alpha=2, beta=40, base=0.5), miners.MultiSimilarityMiner(epsilon=0.1)
        ),
        "snr": lambda: losses.SignalToNoiseRatioContrastiveLoss(),
        "fastap": lambda: losses.FastAPLoss(num_bins=10),
        "ranked-list": lambda: losses.RankedListLoss(margin=0.4, Tn=10, alpha=1.2),
        "nt-xent": lambda: losses.NTXentLoss(temperature=0.1),
        "supcon": lambda: losses.SupConLoss(temperature=0.1),
        "circle": lambda: losses.CircleLoss(m=0.4, gamma=80),
        "proxy-nca": owning("ProxyNCALoss"),
        "proxy-anchor": owning("ProxyAnchorLoss"),
        "soft-triple (no regularizer)": owning("SoftTripleLoss", centers_per_class=2),
        "normalized-softmax": owning("NormalizedSoftmaxLoss"),
        "arcface": owning("ArcFaceLoss"),
        "cosface": owning("CosFaceLoss"),
    }
    if hasattr(losses, "SmoothAPLoss"):
        makers["smooth-ap"] = lambda: losses.SmoothAPLoss(temperature=0.01)
    return makers


def work(step: Any, x: torch.Tensor, y: torch.Tensor) -> None:
    """One forward and backward pass."""
    x.grad = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        step(x, y).backward()


def probe(size: tuple[int, int, int], num_classes: int, names: Iterable[str]) -> dict[str, float | str]:
    """Seconds of one step of each peer, or a string with the reason why it was stopped."""
    waiting = list(names)
    outcomes: dict[str, float | str] = {}
    while waiting:
        command = [sys.executable, "-m", "benchmarks.peer", *map(str, size), str(num_classes), *waiting]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        outcomes |= _listen(child, waiting)
        waiting = [name for name in waiting if name not in outcomes]
    return outcomes


def _listen(child: "subprocess.Popen[str]", waiting: list[str]) -> dict[str, float | str]:
    """Read the outcomes of one child process; the outcome of the loss at which it ended is the limit."""
    import selectors

    outcomes: dict[str, float | str] = {}
    assert child.stdout is not None
    selector = selectors.DefaultSelector()
    selector.register(child.stdout, selectors.EVENT_READ)
    while len(outcomes) < len(waiting):
        if not selector.select(timeout=TIME_LIMIT + 20):
            child.kill()
            outcomes[waiting[len(outcomes)]] = f"over {TIME_LIMIT:.0f} s"
            break
        line = child.stdout.readline()
        if not line:
            outcomes[waiting[len(outcomes)]] = f"over {MEMORY_LIMIT / 2**30:.0f} GB"
            break
        name, outcome = json.loads(line)
        outcomes[name] = outcome
    child.wait()
    return outcomes


def _main(arguments: list[str]) -> None:
    batch, dim, per_class, num_classes = (int(value) for value in arguments[:4])
    x = torch.randn(batch, dim, generator=torch.Generator().manual_seed(0)).requires_grad_()
    y = torch.arange(batch) // per_class % num_classes
    makers = peers(num_classes, dim)
    (x @ x.T).sum().backward()  # type: ignore[no-untyped-call]  # thread pools and buffers are there before the limit is drawn
    with open("/proc/self/statm") as status:
        mapped = int(status.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + MEMORY_LIMIT, mapped + MEMORY_LIMIT))
    for name in arguments[4:]:
        print(json.dumps([name, _try(makers[name], x, y)]), flush=True)


def _try(make: Callable[[], Any], x: torch.Tensor, y: torch.Tensor) -> float | str:
    try:
        step, best = make(), float("inf")
        for _ in range(2):
            begin = time.perf_counter()
            work(step, x, y)
            best = min(best, time.perf_counter() - begin)
            if best > TIME_LIMIT:
                return f"over {TIME_LIMIT:.0f} s"
            if best > 5:
                break
        return best
    except (RuntimeError, MemoryError) as error:
        if any(part in str(error) for part in ("memory", "alloc")) or isinstance(error, MemoryError):
            return f"over {MEMORY_LIMIT / 2**30:.0f} GB"
        return f"fails: {str(error).splitlines()[0][:60]}"


if __name__ == "__main__":
    _main(sys.argv[1:])
