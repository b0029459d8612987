"""Packages that only some parts need, asked for when they are used."""

import importlib
from typing import Any


def import_optional(module: str, package: str, extra: str, purpose: str) -> Any:
    """The imported module, or an ImportError that says what for, and which extra of kinfold brings the package."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise ImportError(f'{purpose} needs {package}: pip install "kinfold[{extra}]"') from None
