"""Optional packages, imported when they are first used."""

import importlib
from typing import Any


def import_optional(module: str, package: str, extra: str, purpose: str) -> Any:
    """Import a module of an optional package.

    Args:
        module: The module to import.
        package: The name of the package, for the error message.
        extra: The extra of kinfold that installs the package.
        purpose: What needs the package; the start of the error message.

    Raises:
        ImportError: The package is not installed; the message says how to install it.
    """
    try:
        return importlib.import_module(module)
    except ImportError:
        raise ImportError(f'{purpose} needs {package}: pip install "kinfold[{extra}]"') from None
