"""Check options against the signature of what they are passed to."""

import inspect
import numbers
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

# type of an option or recipe value: (class that its values belong to, name in error messages)
PLAIN: dict[Any, tuple[type, str]] = {
    bool: (bool, "true or false"),
    int: (numbers.Integral, "an integer"),
    float: (numbers.Real, "a number"),
    str: (str, "a string"),
    type(None): (type(None), "none"),
}


def check_options(
    name: str, target: Callable[..., Any], options: Mapping[str, Any], suggest: Callable[[str, Iterable[str]], str]
) -> None:
    """Refuse options that are unknown, missing, or of the wrong type.

    Only types in `PLAIN` and unions of them are checked. The target itself checks everything else.

    Args:
        name: Name of the target in error messages.
        target: Class or function that takes the options.
        options: Options by name.
        suggest: Function that adds the closest valid option to a message.

    Raises:
        ValueError: An option is unknown, missing, or of the wrong type.
    """
    parameters = inspect.signature(target).parameters
    for option in options:
        if option not in parameters:
            hint = suggest(option, parameters)
            raise ValueError(f"{name!r} has no option {option!r}{hint}; it takes {', '.join(parameters) or 'none'}")
    missing = [key for key, p in parameters.items() if p.default is p.empty and key not in options]
    if missing:
        raise ValueError(f"{name!r} needs the option{'s' * (len(missing) > 1)} {', '.join(missing)}")
    check_types(name, target, options)


def check_types(name: str, target: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """Refuse options of the wrong type; see `check_options`."""
    hints = _type_hints(target)
    for option, value in options.items():
        allowed = _plain_types(hints.get(option, Any))
        if allowed and not hasattr(value, "dtype") and not any(is_instance(value, plain) for plain in allowed):
            expected = " or ".join(dict.fromkeys(PLAIN[plain][1] for plain in allowed))
            raise ValueError(f"{name!r}: {option} must be {expected}, got {value!r}")


def is_instance(value: Any, plain: Any) -> bool:
    """Whether a value is of a plain type; a bool is not a number."""
    return isinstance(value, PLAIN[plain][0]) and (plain is bool or not isinstance(value, bool))


def _type_hints(target: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(target.__init__ if isinstance(target, type) else target)  # type: ignore[misc]
    except Exception:  # annotations of a user's class that cannot be evaluated
        return {}


def _plain_types(hint: Any) -> list[Any]:
    """Plain types that a type hint allows; empty if it allows any other type."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        parts = [_plain_types(argument) for argument in arguments]
        return [plain for part in parts for plain in part] if all(parts) else []
    if origin is Literal:
        return [type(argument) for argument in arguments]
    return [hint] if hint in PLAIN else []
