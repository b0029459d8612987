"""Fixtures for all tests."""

import signal
import sys
from pathlib import Path

import pytest

from kinfold import registry


@pytest.fixture
def interruptible():
    """SIGINT as at a terminal: a shell that starts the tests in the background has them ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before or signal.SIG_DFL)


@pytest.fixture
def own_names(monkeypatch):
    """Names that a test registers, and modules that it loads from elsewhere for that, are gone when it ends."""
    monkeypatch.setattr(registry, "_ADDED", registry.added())
    monkeypatch.setattr(registry, "_TARGETS", {kind: {**targets} for kind, targets in registry._TARGETS.items()})
    before = [*sys.path]
    monkeypatch.setattr(sys, "path", [*before])
    yield
    places = {Path(place) for place in sys.path if place not in before}
    for name, module in [*sys.modules.items()]:
        if Path(getattr(module, "__file__", None) or "/").parent in places:
            del sys.modules[name]
