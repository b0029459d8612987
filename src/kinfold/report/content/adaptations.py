"""Adaptations of runs: what `kinfold adapt` tried, what each step gained, and what it advises."""

from typing import Any

from kinfold.adaptation.folder import AdaptationFolder
from kinfold.adaptation.result import Adaptation
from kinfold.report.content.inputs import ReportInputs
from kinfold.report.content.path_redaction import redact_paths


def describe_adaptations(inputs: ReportInputs, missing: list[str]) -> list[dict[str, Any]]:
    """Return name, verdict and ladder of each run that `kinfold adapt` wrote.

    Args:
        inputs: The runs.
        missing: Gets a sentence for each adaptation that cannot be read.
    """
    described = []
    for method in inputs.methods:
        for repeat in method.repeats:
            folder = getattr(repeat.embedder, "folder", None)
            if folder is None or not AdaptationFolder(folder).finished:
                continue
            try:
                adaptation = Adaptation.open(folder)
            except (ValueError, OSError) as error:
                missing.append(f"the adaptation of {method.label(repeat)} is not shown: {redact_paths(str(error))}")
                continue
            header, *rows = adaptation.cells()
            entry = {"name": method.label(repeat), "verdict": adaptation.verdict, "header": header, "rows": rows}
            described.append(entry)
    return described
