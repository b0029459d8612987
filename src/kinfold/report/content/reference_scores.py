"""Reference scores beside those of runs, such as those of a network before training."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kinfold.files.documents import CHECKSUM_KEY, read_json, read_result, write_result
from kinfold.files.paths import check_path

FILE = "references.json"  # written by `kinfold demo`
SHAPE = {"data": str, "rows": {str: [{str: (float, None)}]}}
Scores = Mapping[str, Sequence[Mapping[str, float]]]  # row -> one dictionary of metrics for each repeat


def write_references(folder: Path, data: str, rows: Scores) -> None:
    """Write reference scores into a folder of runs.

    Args:
        folder: The folder.
        data: Name of the dataset.
        rows: Name of a row -> metrics of each repeat.
    """
    write_result(folder / FILE, {"data": data, "rows": rows}, folder)


def read_references(folder: Path, data: str, result: str) -> dict[str, dict[str, dict[int, float]]]:
    """Read row -> metric -> repeat -> value on the test classes of a dataset; empty if the folder has none."""
    path = folder / FILE
    check_path(path, folder)
    try:
        document = read_json(path, SHAPE, folder)
    except ValueError:  # no such file, or another file of the same name
        return {}
    if CHECKSUM_KEY in document:  # a file written by hand has none
        document = read_result(path, SHAPE, folder)
    if result not in ("test", "separated") or document["data"] != data:
        return {}
    return {name: _group_by_metric(repeats) for name, repeats in document["rows"].items()}


def _group_by_metric(repeats: Sequence[Mapping[str, Any]]) -> dict[str, dict[int, float]]:
    values: dict[str, dict[int, float]] = {}
    for number, scores in enumerate(repeats):
        for metric, value in scores.items():
            if value is not None and math.isfinite(value):
                values.setdefault(metric, {})[number] = float(value)
    return values
