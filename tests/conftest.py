"""Fixtures for all tests."""

import sys
from pathlib import Path

import pytest

from kinfold import registry


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
