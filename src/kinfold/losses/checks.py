"""Checks of losses at construction, so that an author sees a mistake there and not inside the first call."""

import math
from typing import TYPE_CHECKING, get_args

from kinfold.losses.scoring import Measure
from kinfold.registry import suggest

if TYPE_CHECKING:
    from kinfold.losses.loss import Loss

KINDS = ("pair", "anchor", "batch")


def check_attributes(loss: "Loss", base: "type[Loss]") -> None:
    """Raise ValueError for an unknown `kind` or `measure`, and for a loss that defines no terms."""
    name = type(loss).__name__
    for attribute, allowed in (("kind", KINDS), ("measure", get_args(Measure))):
        value = getattr(loss, attribute)
        if value not in allowed:
            raise ValueError(
                f"{name}.{attribute} is {value!r}{suggest(str(value), allowed)}; it must be one of {', '.join(allowed)}"
            )
    if all(getattr(type(loss), method) is getattr(base, method) for method in ("terms", "tuple_terms", "forward")):
        raise ValueError(f"{name} computes nothing: define terms(self, pairs) -> Terms")


def check_initialized(loss: "Loss", name: str) -> None:
    """Raise ValueError for a constructor that does not call that of the base class."""
    if "_modules" not in vars(loss):
        raise ValueError(f"{name!r}: the __init__ of {type(loss).__name__} must begin with super().__init__(reduction)")


def check_positive(**options: float) -> None:
    """Raise ValueError for the first option that is not a finite number above zero."""
    for name, value in options.items():
        if not (value > 0 and math.isfinite(value)):
            raise ValueError(f"{name} must be a positive number, got {value}")


def check_choice(option: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise ValueError for a value that is not one of the choices."""
    if value not in choices:
        allowed = ", ".join(map(repr, choices[:-1])) + f" or {choices[-1]!r}"
        raise ValueError(f"{option} must be {allowed}, got {value!r}")
