"""Fixtures for all tests."""

import signal
import sys
from collections import Counter
from pathlib import Path

import pytest

from kinfold.registry import lookup

# its import registers a device for the rest of the process; only `-p tests.on_second_device` does that
collect_ignore = ["on_second_device.py"]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark the cases of a `sampled` test as slow, except every n-th of them."""
    counts = Counter[str]()
    for item in items:
        marker = item.get_closest_marker("sampled")
        if marker is not None:
            test = item.nodeid.split("[")[0]
            if counts[test] % marker.args[0]:
                item.add_marker("slow")
            counts[test] += 1


@pytest.fixture
def interruptible():
    """Handle SIGINT as at a terminal; a shell that starts the tests in the background makes them ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before or signal.SIG_DFL)


@pytest.fixture
def own_names(monkeypatch):
    """Undo what a test registers, and forget the modules that it loads for that."""
    monkeypatch.setattr(lookup, "_added", [*lookup._added])
    monkeypatch.setattr(lookup, "_targets", {kind: {**targets} for kind, targets in lookup._targets.items()})
    path_before = [*sys.path]
    monkeypatch.setattr(sys, "path", [*path_before])
    yield
    added_folders = {Path(folder) for folder in sys.path if folder not in path_before}
    for name, module in [*sys.modules.items()]:
        if Path(getattr(module, "__file__", None) or "/").parent in added_folders:
            del sys.modules[name]
