"""Options that were given by name, checked before anything is made of them."""

import inspect
import numbers
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

# the kinds that recipes and options are made of, what is taken for each, and how it is called
PLAIN: dict[Any, tuple[type, str]] = {
    bool: (bool, "true or false"),
    int: (numbers.Integral, "a whole number"),
    float: (numbers.Real, "a number"),
    str: (str, "a word"),
    type(None): (type(None), "none"),
}


def check_options(
    name: str, target: Callable[..., Any], options: Mapping[str, Any], near: Callable[[str, Iterable[str]], str]
) -> None:
    """ValueError for an option that `target` does not have, that is missing, or whose value is of the wrong kind.

    Only numbers, words and the like are looked at: what a type says beyond that the target itself knows best.
    """
    known = inspect.signature(target).parameters
    for option in options:
        if option not in known:
            raise ValueError(
                f"{name!r} has no option {option!r}{near(option, known)}; it takes {', '.join(known) or 'none'}"
            )
    missing = [key for key, p in known.items() if p.default is p.empty and key not in options]
    if missing:
        raise ValueError(f"{name!r} needs the option{'s' * (len(missing) > 1)} {', '.join(missing)}")
    hints = _hints(target)
    for option, value in options.items():
        wanted = _kinds(hints.get(option, Any))
        if wanted and not hasattr(value, "dtype") and not any(fits(value, kind) for kind in wanted):
            told = " or ".join(dict.fromkeys(PLAIN[kind][1] for kind in wanted))
            raise ValueError(f"{name!r}: {option} must be {told}, got {value!r}")


def _hints(target: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(target.__init__ if isinstance(target, type) else target)  # type: ignore[misc]
    except Exception:  # hints of somebody's own that stand for nothing at run time
        return {}


def _kinds(hint: Any) -> list[Any]:
    """The plain kinds that a hint allows; none where it allows anything else. Which words it takes the target says."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        parts = [_kinds(entry) for entry in inner]
        return [kind for part in parts for kind in part] if all(parts) else []
    if origin is Literal:
        return [type(entry) for entry in inner]
    return [hint] if hint in PLAIN else []


def fits(value: Any, kind: Any) -> bool:
    """Whether a value is of a plain kind; true and false are no numbers."""
    return isinstance(value, PLAIN[kind][0]) and (kind is bool or not isinstance(value, bool))
