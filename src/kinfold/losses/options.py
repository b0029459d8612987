"""Checks of constructor options that several losses share."""

import math


def positive(**options: float) -> None:
    """ValueError for the first option that is not a finite number above zero."""
    for name, value in options.items():
        if not (value > 0 and math.isfinite(value)):
            raise ValueError(f"{name} must be a positive number, got {value}")
