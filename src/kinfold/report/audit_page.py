"""The page of an audit: every finding with its pictures, to confirm or to refuse, and the CSV file that follows."""

from pathlib import Path
from typing import Any

import kinfold
from kinfold.audit import Audit
from kinfold.audit.findings import COLUMNS, KINDS
from kinfold.data import Dataset
from kinfold.report.content.thumbnails import Thumbnails
from kinfold.report.page.html import AUDIT_SCRIPTS, write_page

MAX_FINDINGS = 2_000
_NAME = "audit"


def write_audit_page(audit: Audit, dataset: Dataset, path: Path | str) -> Path:
    """Write an audit as one offline HTML file.

    Args:
        audit: The result of `kinfold.audit.audit`.
        dataset: The dataset that was audited.
        path: The .html file.

    Returns:
        The path.

    Raises:
        ValueError: The name does not end with .html, or its folder does not exist, or the audit is of another dataset.
    """
    if len(dataset) != audit.items:
        raise ValueError(f"the audit is of {audit.items:,} items, and the dataset has {len(dataset):,}")
    return write_page(collect_findings(audit, dataset), path, AUDIT_SCRIPTS)


def collect_findings(audit: Audit, dataset: Dataset, most: int = MAX_FINDINGS) -> dict[str, Any]:
    """Return what the page shows, as plain values.

    Args:
        audit: The result of `kinfold.audit.audit`.
        dataset: The dataset that was audited.
        most: How many findings are shown with pictures; the CSV text of the page has all.
    """
    shown = audit.findings[:most]
    thumbnails = Thumbnails()
    thumbnails.request(_NAME, dataset, (finding.row for finding in shown))
    thumbnails.request(_NAME, dataset, (finding.other_row for finding in shown if finding.other_row is not None))
    sheets = thumbnails.draw(None)
    sprites = None if sheets is None else thumbnails.get_sprites(_NAME, len(dataset))
    missing = [] if sheets is not None else ["the items are features, not images: rows and classes are shown instead"]
    if len(audit.findings) > most:
        missing.append(f"{most:,} of {len(audit.findings):,} findings are shown; the CSV text has all")

    def describe(row: int) -> dict[str, Any]:
        return {
            "row": row,
            "class": dataset.classes[int(dataset.labels[row])],
            "split": str(dataset.split[row]),
            "thumbnail": -1 if sprites is None else int(sprites[row]),
        }

    return {
        "title": f"audit of {audit.name}",
        "kind": "audit",
        "about": {"kinfold": kinfold.__version__, "compared by": audit.features},
        "thumbnails": sheets,
        "summary": audit.describe(),
        "missing": missing,
        "kinds": KINDS,
        "columns": [*COLUMNS],
        "csv": [[str(value) for value in finding.to_dict().values()] for finding in audit.findings],
        "findings": [
            {
                "kind": finding.kind,
                "reason": finding.reason,
                "item": describe(finding.row),
                "other": None if finding.other_row is None else describe(finding.other_row),
            }
            for finding in shown
        ],
        "hard": [{"class": name, "share": share} for name, share in audit.hard_classes[:50]],
        "confused": [{"class": one, "other": other, "share": share} for one, other, share in audit.confused[:50]],
    }
