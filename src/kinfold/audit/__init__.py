"""Audits of datasets: label errors, duplicates, leakage between splits, hard classes, unusable images.

| module | what it holds |
|---|---|
| `dataset_audit` | `audit` |
| `findings` | `Audit`, `Finding` |
| `label_errors`, `duplicates` | how they are found |
"""

from kinfold.audit.dataset_audit import audit
from kinfold.audit.findings import Audit, Finding
from kinfold.audit.label_errors import LabelCheck, check_labels

__all__ = ["Audit", "Finding", "LabelCheck", "audit", "check_labels"]
