"""Losses that fail in the first training step, in the ways that runs of a bench fail."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest
import torch

from kinfold import registry
from kinfold.losses.contrastive import Contrastive


class _Faulty(Contrastive):
    """Fails only when gradients are enabled: a run is built without them."""

    def forward(self, *arguments, **options):
        if torch.is_grad_enabled():
            self.fail()
        return super().forward(*arguments, **options)

    def fail(self) -> None:
        raise NotImplementedError


class Raising(_Faulty):
    def fail(self):
        raise RuntimeError("no such luck")


class OutOfMemory(_Faulty):
    def fail(self):
        raise MemoryError


class Greedy(_Faulty):
    """Asks torch for more memory than any machine has."""

    def fail(self):
        torch.empty(1 << 60, dtype=torch.uint8)


class Killed(_Faulty):
    """What the kernel does where memory is short."""

    def fail(self):
        os.kill(os.getpid(), signal.SIGKILL)


class Leaving(_Faulty):
    def fail(self):
        sys.exit(3)


class Terminated(_Faulty):
    """Somebody ends the worker, once for the whole bench: `mark` is a file that remembers it."""

    def __init__(self, mark: str) -> None:
        super().__init__()
        self.mark = Path(mark)

    def fail(self):
        if not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGTERM)


class KilledOnce(Terminated):
    """The kernel ends the worker, once for the whole bench."""

    def fail(self):
        if not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)


class HangingOnce(Terminated):
    """Waits for something that never comes and takes no notice of SIGTERM, once for the whole bench."""

    def fail(self):
        if not self.mark.exists():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            self.mark.touch()
            while True:
                time.sleep(60)


FAULTS = {
    "raising": Raising,
    "out-of-memory": OutOfMemory,
    "greedy": Greedy,
    "killed": Killed,
    "leaving": Leaving,
    "terminated": Terminated,
    "killed-once": KilledOnce,
    "hanging-once": HangingOnce,
}


@pytest.fixture
def faults(own_names):
    """The losses above by their names, for one test."""
    for name, loss in FAULTS.items():
        registry.register("losses", name, f"{__name__}:{loss.__name__}")
