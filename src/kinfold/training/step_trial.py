"""How long a run on images will take, from a short trial, and what would be faster."""

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from kinfold.devices import synchronize
from kinfold.embedding.compute import AUTOCAST_TYPES
from kinfold.models import Embedder

MIN_WEIGHTS = 1_000_000  # of a backbone; a smaller one trains fast enough without a trial
LONG_RUN = 120.0  # seconds; faster settings are tried for longer runs only
_ROUNDS = 2  # timed, after one that is not
_MIN_GAIN = 0.8  # share of the time from which a setting is worth a line
_SMALLER = {"224": (128, 96), "128": (96,)}


@dataclass(frozen=True)
class Estimate:
    """The time of a run.

    Attributes:
        step_seconds: Of one step.
        run_seconds: Of all steps and evaluations.
        features_seconds: Of computing the features of all images once.
        faster: Share of the time of a step by the setting that it takes, such as "data.size=96"; each was timed.
    """

    step_seconds: float
    run_seconds: float
    features_seconds: float
    faster: dict[str, float] = field(default_factory=dict)


def needs_estimate(model: Embedder) -> bool:
    """Return whether a network takes long enough to say so before training."""
    is_network = model.backbone.mode is not None
    return is_network and sum(weight.numel() for weight in model.backbone.parameters()) >= MIN_WEIGHTS


def estimate_run(
    model: Embedder,
    read: Callable[[], Tensor],
    *,
    batch_size: int,
    steps: int,
    evaluated: int,
    total: int,
    precision: str = "float32",
    workers: int = 0,
) -> Estimate:
    """Time a few images forward and backward, and scale it to the whole run.

    Args:
        model: The network, on its device; a copy is timed.
        read: Reads and prepares the images of the trial, (n, C, H, W), on the device of the network.
        batch_size: Images of a step.
        steps: Steps of the run.
        evaluated: Images that all evaluations of the run embed together.
        total: Images of the dataset.
        precision: Of the run.
        workers: Processes that read images beside the training.
    """
    start = time.perf_counter()
    images = read()
    read_seconds = (time.perf_counter() - start) / len(images)
    network = copy.deepcopy(model).train()
    train_seconds = _time(network, images, precision) / len(images)
    embed_seconds = _time(network, images, precision, backward=False) / len(images)
    one = _combine(train_seconds, read_seconds, workers)
    embedded = _combine(embed_seconds, read_seconds, workers)
    run_seconds = batch_size * steps * one + evaluated * embedded
    faster: dict[str, float] = {}
    if run_seconds > LONG_RUN:
        for size in _SMALLER.get(str(images.shape[-1]), ()):
            small = interpolate(images, size=(size, size))
            faster[f"data.size={size}"] = _time(network, small, precision) / len(images) / train_seconds
        other = "bfloat16" if precision == "float32" else "float32"
        if precision in ("float32", "bfloat16"):
            faster[f"training.precision={other}"] = _time(network, images, other) / len(images) / train_seconds
    faster = {change: share for change, share in faster.items() if share <= _MIN_GAIN}
    return Estimate(batch_size * one, run_seconds, total * embedded, faster)


def _combine(compute: float, read: float, workers: int) -> float:
    """Seconds for an image that is read and computed; workers read while the network computes."""
    return compute + read if workers == 0 else max(compute, read / workers)


def _time(model: Embedder, images: Tensor, precision: str, backward: bool = True) -> float:
    """Seconds of a pass, the minimum of some."""
    half = AUTOCAST_TYPES.get(precision)
    seconds = []
    with torch.random.fork_rng(devices=[images.device] if images.is_cuda else []), torch.set_grad_enabled(backward):
        for _ in range(1 + _ROUNDS):
            start = time.perf_counter()
            with torch.autocast(images.device.type, dtype=half, enabled=half is not None):
                features = model.features(images)
            if backward and features.requires_grad:
                torch.autograd.backward(features.float().sum())
            synchronize(images.device)
            seconds.append(time.perf_counter() - start)
    return min(seconds[1:])
