"""Run tests on the second device: `pytest -p tests.on_second_device tests/contract`.

Tensors that test code creates without naming a device are created there. What the package creates is left as it is, so
that a tensor on the wrong device is found.
"""

import sys
from pathlib import Path

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors

from kinfold.testing import load_second_device
from tests import problems

DEVICE = load_second_device()
TESTS = str(Path(__file__).parent)

make_on_cpu = problems.make


class FactoriesOfTests(TorchFunctionMode):
    """Adds the device to calls of `torch.zeros`, `torch.tensor` and their siblings that are written in a test."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        options = dict(kwargs or {})
        is_factory = func in _device_constructors() and options.get("device") is None
        if is_factory and sys._getframe(1).f_code.co_filename.startswith(TESTS):
            options["device"] = DEVICE
        return func(*args, **options)


def pytest_addoption(parser):
    parser.addoption("--every", type=int, default=1, help="run every n-th test only")


def pytest_collection_modifyitems(config, items):
    items[:] = items[:: config.getoption("--every")]


def pytest_configure(config):
    problems.generator = lambda seed: torch.Generator(DEVICE).manual_seed(seed)
    problems.make = lambda *args, **options: make_on_cpu(*args, **options).to(DEVICE)
    FactoriesOfTests().__enter__()
