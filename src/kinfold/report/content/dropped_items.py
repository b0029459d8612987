"""Items that a run leaves out: those that the CSV file of `kinfold data audit` marks, by kind."""

from collections import Counter
from pathlib import Path
from typing import Any

from kinfold.data.column_files import read_columns
from kinfold.report.content.inputs import ReportInputs
from kinfold.report.content.path_redaction import redact_paths


def describe_dropped_items(inputs: ReportInputs, missing: list[str]) -> list[dict[str, Any]]:
    """Return the name of each audit that runs were trained after, and its findings by kind.

    Args:
        inputs: The runs.
        missing: Gets a sentence for each file that cannot be read.
    """
    names: dict[str, list[str]] = {}
    for method in inputs.methods:
        for repeat in method.repeats:
            for run in repeat.runs:
                if run.config.data.drop is not None:
                    names.setdefault(run.config.data.drop, []).append(method.name)
    described = []
    for file, methods in names.items():
        try:
            columns = read_columns(file)
            kinds, marks = columns.require("kind").tolist(), columns.require("drop").tolist()
        except (ValueError, OSError) as error:
            missing.append(f"the audit is not shown: {redact_paths(str(error))}")
            continue
        counts = Counter(kinds)
        dropped = Counter(kind for kind, mark in zip(kinds, marks, strict=True) if mark == "yes")
        rows = [{"kind": kind, "found": count, "dropped": dropped[kind]} for kind, count in counts.most_common()]
        described.append({"file": Path(file).name, "methods": [*dict.fromkeys(methods)], "rows": rows})
    return described
