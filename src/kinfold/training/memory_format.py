"""Which memory format is faster for a network: a short trial at the start of a run."""

import copy
import time
from typing import get_args

import torch
from torch import Tensor

from kinfold.embedding.compute import AUTOCAST_TYPES
from kinfold.models import Embedder
from kinfold.models.embedder import MemoryFormat

MIN_WEIGHTS = 1_000_000  # of convolutions; a smaller network stays contiguous without a trial
_ROUNDS = 3  # timed, after one that is not
_MIN_GAIN = 1.1  # how much faster channels-last has to be; below, noise would choose, and runs would differ in rounding


def needs_trial(model: Embedder) -> bool:
    """Return whether the memory format of a network may matter: it has enough weights in convolutions."""
    return sum(weight.numel() for weight in model.backbone.parameters() if weight.ndim == 4) >= MIN_WEIGHTS


def count_trial_images(device: torch.device) -> int:
    """Return how many images a trial needs: few on a CPU, more on other devices, which small batches leave idle."""
    return 8 if device.type == "cpu" else 64


def time_memory_formats(model: Embedder, images: Tensor, precision: str = "float32") -> dict[str, float | None]:
    """Time forward and backward passes in both memory formats, in turns.

    Args:
        model: The network, on its device. Copies of it are timed.
        images: (B, C, H, W), normalized, on the same device.
        precision: "float32", "bfloat16", "float16" or "float64".

    Returns:
        Milliseconds by memory format, the minimum of some rounds; None where the backbone does not take the format.
    """
    half = AUTOCAST_TYPES.get(precision)
    milliseconds: dict[str, float | None] = {}
    with torch.random.fork_rng(devices=[images.device] if images.is_cuda else []):
        copies = {name: copy.deepcopy(model).train().set_memory_format(name) for name in get_args(MemoryFormat)}
        for turn in range(1 + _ROUNDS):
            for name, network in copies.items():
                if milliseconds.get(name, 0.0) is None:
                    continue
                start = _read_clock(images.device)
                try:
                    with torch.autocast(images.device.type, dtype=half, enabled=half is not None):
                        features = network.features(images)
                    torch.autograd.backward(features.float().sum())
                except RuntimeError:
                    if name == "contiguous":
                        raise
                    milliseconds[name] = None  # such as a view that needs contiguous maps
                    continue
                took = 1000 * (_read_clock(images.device) - start)
                if turn > 0:
                    milliseconds[name] = min(took, milliseconds.get(name) or took)
    return milliseconds


def choose_memory_format(milliseconds: dict[str, float | None]) -> MemoryFormat:
    """Return the faster memory format; channels-last only where it is clearly faster.

    Examples:
        >>> choose_memory_format({"contiguous": 30.0, "channels-last": 20.0})
        'channels-last'
        >>> choose_memory_format({"contiguous": 30.0, "channels-last": 29.0})
        'contiguous'
    """
    contiguous, channels_last = milliseconds["contiguous"], milliseconds["channels-last"]
    assert contiguous is not None  # a failure there is an error
    return "channels-last" if channels_last is not None and contiguous >= _MIN_GAIN * channels_last else "contiguous"


def _read_clock(device: torch.device) -> float:
    """Return seconds: of the processor, which other processes do not disturb, or after all work of another device."""
    if device.type == "cpu":
        return time.process_time()
    torch.get_device_module(device).synchronize()
    return time.perf_counter()
