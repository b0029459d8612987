"""Scores that stand beside those of runs for reference, such as those of a network before it was trained."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kinfold.files.documents import CHECKSUM_KEY, read_json, read_result, write_result
from kinfold.files.paths import check_path

FILE = "references.json"  # that `kinfold demo` leaves in its folder
SHAPE = {"data": str, "rows": {str: [{str: (float, None)}]}}
Scores = Mapping[str, Sequence[Mapping[str, float]]]  # row -> one dictionary of metrics for each repeat


def write_references(folder: Path, data: str, rows: Scores) -> None:
    write_result(folder / FILE, {"data": data, "rows": rows}, folder)


def references(folder: Path, data: str, result: str) -> dict[str, dict[str, dict[int, float]]]:
    """row -> metric -> repeat -> value, on the test classes of this data; nothing where the folder has none."""
    path = folder / FILE
    check_path(path, folder)
    try:
        about = read_json(path, SHAPE, folder)
    except ValueError:  # not there, or a file of somebody else's that has the same name
        return {}
    if CHECKSUM_KEY in about:  # one that was written by hand has none
        about = read_result(path, SHAPE, folder)
    if result != "test" or about["data"] != data:
        return {}
    return {name: _by_metric(repeats) for name, repeats in about["rows"].items()}


def _by_metric(repeats: Sequence[Mapping[str, Any]]) -> dict[str, dict[int, float]]:
    found: dict[str, dict[int, float]] = {}
    for number, scores in enumerate(repeats):
        for metric, value in scores.items():
            if value is not None and math.isfinite(value):
                found.setdefault(metric, {})[number] = float(value)
    return found
