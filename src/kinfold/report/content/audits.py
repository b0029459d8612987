"""What `kinfold data audit` found in the data of runs, by kind, and what they leave out."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kinfold.data.column_files import read_columns
from kinfold.data.dropping import find_marked
from kinfold.report.content.datasets import RunDatasets
from kinfold.report.content.inputs import ReportInputs
from kinfold.report.content.path_redaction import redact_paths
from kinfold.training import Run

_NAME = "audit.csv"


def describe_audits(inputs: ReportInputs, datasets: RunDatasets, missing: list[str]) -> list[dict[str, Any]]:
    """Return the findings of audits by kind: of those that runs were trained after, and of those beside data and runs.

    An audit is looked for as `audit.csv` in the folder of a run and in and beside the folder or the file of its data,
    and as `NAME.audit.csv` beside data of that name. It has to be an audit of this data, and may be changed by hand.

    Args:
        inputs: The runs.
        datasets: Where to get their data.
        missing: Gets a sentence for each file that cannot be read.

    Returns:
        "file": its name. "methods": what was trained after it; none for an audit that was found. "rows": the number
        of findings of each kind, and of those that are marked to be left out.
    """
    runs = [(method.name, run) for method in inputs.methods for repeat in method.repeats for run in repeat.runs]
    names: dict[Path, list[str]] = {}
    for name, run in runs:
        if run.config.data.drop is not None:
            names.setdefault(Path(run.config.data.drop), []).append(name)
    described = []
    for file, methods in names.items():
        try:
            described.append(_describe(file, methods))
        except (ValueError, OSError) as error:
            missing.append(f"the audit is not shown: {redact_paths(str(error))}")
    known = {file.resolve() for file in names}
    for _, run in runs:
        for file in _list_candidates(run):
            if file.is_file() and file.resolve() not in known:
                known.add(file.resolve())
                try:
                    find_marked(datasets.load_audited(run), file)
                    described.append(_describe(file, []))
                except (ValueError, OSError):  # of other data, or no audit
                    continue
    return described


def _list_candidates(run: Run) -> Iterator[Path]:
    yield run.folder / _NAME
    if run.config.data.root is not None:
        root = Path(run.config.data.root)
        yield root / _NAME
        yield root.with_name(_NAME)
        yield root.with_name(f"{root.stem}.{_NAME}")


def _describe(file: Path, methods: list[str]) -> dict[str, Any]:
    columns = read_columns(file)
    kinds, marks = columns.require("kind").tolist(), columns.require("drop").tolist()
    dropped = Counter(kind for kind, mark in zip(kinds, marks, strict=True) if mark == "yes")
    rows = [{"kind": kind, "found": count, "dropped": dropped[kind]} for kind, count in Counter(kinds).most_common()]
    return {"file": file.name, "methods": [*dict.fromkeys(methods)], "rows": rows}
