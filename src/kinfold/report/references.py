"""Scores that stand beside those of runs for reference, such as those of a network before it was trained."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kinfold.files import write_json

FILE = "references.json"  # that `kinfold demo` leaves in its folder
Scores = Mapping[str, Sequence[Mapping[str, float]]]  # row -> one dictionary of metrics for each repeat


def write_references(folder: Path, data: str, rows: Scores) -> None:
    write_json(folder / FILE, {"data": data, "rows": rows})


def references(folder: Path, data: str, result: str) -> dict[str, dict[str, dict[int, float]]]:
    """row -> metric -> repeat -> value, on the test classes of this data; nothing where the folder has none."""
    try:
        about = json.loads((folder / FILE).read_text())
        if result != "test" or about["data"] != data:
            return {}
        return {str(name): _by_metric(repeats) for name, repeats in about["rows"].items()}
    except (OSError, ValueError, TypeError, LookupError, AttributeError):  # not there, or not ours
        return {}


def _by_metric(repeats: Sequence[Mapping[str, Any]]) -> dict[str, dict[int, float]]:
    found: dict[str, dict[int, float]] = {}
    for number, scores in enumerate(repeats):
        for metric, value in scores.items():
            if math.isfinite(value):
                found.setdefault(metric, {})[number] = float(value)
    return found
