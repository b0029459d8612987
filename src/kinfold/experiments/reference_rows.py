"""What needs no training, measured beside the methods of a bench, which should beat it."""

from collections.abc import Sequence
from typing import Any

REFERENCE_ROWS = {"half-whitened": "half-whiten", "whitened within classes": "within-whiten"}  # name -> `model.init`
_UNTRAINED = {"steps": 0}


def add_reference_rows(methods: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the tables of the methods after those of half-whitening and of whitening within classes.

    Examples:
        >>> [entry["name"] for entry in add_reference_rows([{"name": "margin"}])]
        ['half-whitened', 'whitened within classes', 'margin']
    """
    present = {entry.get("name") for entry in methods}
    rows = [
        {"name": name, "model": {"head": "linear", "init": kind}, "training": {**_UNTRAINED}}
        for name, kind in REFERENCE_ROWS.items()
        if name not in present
    ]
    return [*rows, *methods]
