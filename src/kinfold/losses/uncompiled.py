"""Run a function that `torch.compile` leaves as it is. Importing this module loads the compiler of torch: a second."""

from collections.abc import Callable
from typing import Any

import torch

__all__ = ["run_uncompiled"]


@torch.compiler.disable  # type: ignore[untyped-decorator]
def run_uncompiled(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function and everything that it calls without compiling any of it.

    Args:
        function: The function.
        *arguments: Its arguments.

    Returns:
        What the function returns.
    """
    return function(*arguments)
