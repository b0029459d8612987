"""What the author of a loss may have got wrong, said where it is made instead of deep inside its first use."""

from typing import TYPE_CHECKING, get_args

from kinfold.losses.scoring import Measure
from kinfold.registry import suggest

if TYPE_CHECKING:
    from kinfold.losses.loss import Loss

KINDS = ("pair", "anchor", "batch")


def check_declared(loss: "Loss", base: "type[Loss]") -> None:
    """ValueError for a kind or measure that there is not, and for a loss that does not define its terms."""
    name = type(loss).__name__
    for attribute, known in (("kind", KINDS), ("measure", get_args(Measure))):
        value = getattr(loss, attribute)
        if value not in known:
            near = suggest(str(value), known)
            raise ValueError(f"{name}.{attribute} is {value!r}{near}; it is one of {', '.join(known)}")
    if all(getattr(type(loss), method) is getattr(base, method) for method in ("terms", "tuple_terms", "forward")):
        raise ValueError(f"{name} does not say what it computes: define terms(self, pairs) -> Terms")


def check_made(loss: "Loss", name: str) -> None:
    """ValueError where a constructor leaves out that of the base class."""
    if "_modules" not in vars(loss):
        raise ValueError(f"{name!r}: the __init__ of {type(loss).__name__} must begin with super().__init__(reduction)")
