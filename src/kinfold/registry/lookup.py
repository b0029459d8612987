"""Look up, create and register objects by name."""

import difflib
import importlib
import warnings
from collections.abc import Callable, Iterable
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar, overload

from kinfold.registry.builtin import BUILTIN, LIBRARIES
from kinfold.registry.hints import find_alias
from kinfold.registry.options import check_options

_targets = {kind: {**targets} for kind, targets in BUILTIN.items()}
_added: list[tuple[str, str, str]] = []
_SINGULAR = {"losses": "loss", "sets": "uncertainty set"}

Target = TypeVar("Target", bound=Callable[..., Any])


def kinds() -> list[str]:
    """Kinds of objects that have names: losses, miners, datasets, recipes, ..."""
    return [*_targets, "recipes", "tables"]


def names(kind: str) -> list[str]:
    """Registered names of one kind, in the order of the documentation.

    Args:
        kind: One of `kinds()`, such as "losses".

    Returns:
        The names. No loss, miner, ... is imported.

    Raises:
        ValueError: Unknown kind.

    Examples:
        >>> names("miners")[:2]
        ['all', 'multi-similarity']
    """
    if kind == "recipes":  # recipes and tables are files, not classes
        from kinfold import recipes

        return recipes.list_recipes()
    if kind == "tables":  # without `kinfold.papers`, which imports torch
        folder = Path(__file__).parents[1] / "papers" / "tables"
        return sorted(path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.toml"))
    return [*_targets_of(kind)]


def targets(kind: str) -> dict[str, str]:
    """Targets `module:attribute` of one kind, by name. Nothing is imported."""
    return {**_targets_of(kind)}


def resolve(kind: str, name: str) -> Any:
    """Import the class or function that is registered under a name.

    Args:
        kind: Kind of object, such as "losses".
        name: Registered name, such as "triplet", or "pml/NAME" for NAME of pytorch-metric-learning.

    Returns:
        The class or function.

    Raises:
        ValueError: Unknown kind or name; the message suggests the closest one.
    """
    targets = _targets_of(kind)
    if not isinstance(name, str):
        raise ValueError(f"a name in {kind} must be a string, got {name!r}; `kinfold list {kind}` shows all names")
    library, _, rest = name.partition("/")
    if name not in targets and rest and library in LIBRARIES.get(kind, {}):
        module, attribute = LIBRARIES[kind][library].split(":")
        return getattr(importlib.import_module(module), attribute)(rest)
    if name not in targets:
        noun = _SINGULAR.get(kind, kind.removesuffix("s"))
        hint = f"`kinfold list {kind}` shows all names, and --plugin FILE adds yours"
        raise ValueError(f"{noun} {name!r} not found{suggest(name, targets)}; {hint}")
    module, attribute = targets[name].split(":")
    target = getattr(importlib.import_module(module), attribute, None)
    if target is None:
        where = (
            "the main program, which other processes cannot import: move it into a file"
            if module == "__main__"
            else module
        )
        raise ValueError(f"{name!r} in {kind} is registered as {targets[name]}, but there is no {attribute} in {where}")
    return target


def create(kind: str, name: str, **options: Any) -> Any:
    """Create the object that is registered under a name.

    Args:
        kind: Kind of object, such as "losses".
        name: Registered name, such as "triplet".
        **options: Arguments of its constructor.

    Returns:
        The object.

    Raises:
        ValueError: Unknown kind or name, or an option that is unknown, missing or of the wrong type.
    """
    target: Callable[..., Any] = resolve(kind, name)
    check_options(name, target, options, suggest)
    return target(**options)


@overload
def register(kind: str, name: str) -> Callable[[Target], Target]: ...
@overload
def register(kind: str, name: str, target: str) -> None: ...
def register(kind: str, name: str, target: str | None = None) -> Callable[[Target], Target] | None:
    """Register a new name, so that it can be created, listed and used in recipes like a built-in one.

    Args:
        kind: Kind of object, such as "losses".
        name: The new name.
        target: `module:attribute` of a class or function, which is imported on first use. Without it, `register` is
            a decorator for a class or function at the top level of a module.

    Returns:
        A decorator, or None with `target`.

    Raises:
        ValueError: The name is taken, the kind is unknown, or the target cannot be imported by other processes.

    Examples:
        >>> @register("miners", "nothing")  # doctest: +SKIP
        ... class Nothing(kinfold.miners.Miner): ...
    """
    if target is not None:
        _add(kind, name, target)
        return None

    def decorate(decorated: Target) -> Target:
        if "." in decorated.__qualname__:
            raise ValueError(
                f"{decorated.__qualname__} must stand at the top level of its file to be registered as {name!r}"
            )
        _add(kind, name, f"{decorated.__module__}:{decorated.__qualname__}")
        return decorated

    return decorate


def list_added() -> list[tuple[str, str, str]]:
    """(kind, name, target) of every name that `register` added, for worker processes that need them too."""
    return [*_added]


def suggest(text: str, choices: Iterable[str]) -> str:
    """Suggest the choice that a string of other libraries means, or that is closest to a misspelled one.

    Args:
        text: What the user wrote.
        choices: Valid strings.

    Returns:
        ` (did you mean 'x'?)`, or an empty string if no choice is close.

    Examples:
        >>> suggest("triplt", ["margin", "triplet"])
        " (did you mean 'triplet'?)"
    """
    choices = [*choices]
    if alias := find_alias(text, choices):
        return f" (did you mean {alias!r}?)"
    for spelling in (text.replace("_", "-"), text):
        if close := difflib.get_close_matches(spelling, choices, n=1, cutoff=0.6):
            return f" (did you mean {close[0]!r}?)"
    longer = next((choice for choice in choices if len(text) >= 3 and choice.startswith(text)), None)
    return "" if longer is None else f" (did you mean {longer!r}?)"


def check_known(what: str, value: str, choices: Iterable[str]) -> None:
    """Raise a ValueError that names the closest choice, unless the value is one of the choices.

    Args:
        what: What the value is, for the message.
        value: What the user wrote.
        choices: Valid strings.

    Examples:
        >>> check_known("pool", "avg", ["avg", "max"])
    """
    choices = [*choices]
    if value not in choices:
        raise ValueError(f"unknown {what} {value!r}{suggest(value, choices)}; there are {', '.join(choices)}")


def check_choice(option: str, value: str, choices: Iterable[str]) -> None:
    """Raise a ValueError for an option whose value is not one of the choices.

    Examples:
        >>> check_choice("variant", "standard", ["standard", "as-coded"])
    """
    choices = [*choices]
    if value not in choices:
        near = suggest(value, choices) if isinstance(value, str) else ""
        raise ValueError(f"{option} must be one of {', '.join(map(repr, choices))}, got {value!r}{near}")


def _add(kind: str, name: str, target: str) -> None:
    targets = _targets_of(kind)
    if name in targets and targets[name] != target:
        raise ValueError(f"{name!r} is already registered in {kind} as {targets[name]}; choose another name")
    if target.count(":") != 1:
        raise ValueError(f"target {target!r} must look like 'package.module:attribute'")
    if name not in targets:
        _added.append((kind, name, target))
    targets[name] = target


def _targets_of(kind: str) -> dict[str, str]:
    if kind not in _targets:
        raise ValueError(f"unknown kind {kind!r}{suggest(kind, kinds())}; the kinds are {', '.join(kinds())}")
    _add_entry_points()
    return _targets[kind]


@cache
def _add_entry_points() -> None:
    """Add the names of installed packages. They cannot replace built-in names."""
    entry_points = metadata.entry_points()  # once for all kinds: reads the metadata of every installed package
    for kind, targets in _targets.items():
        for entry_point in entry_points.select(group=f"kinfold.{kind}"):
            if targets.setdefault(entry_point.name, entry_point.value) != entry_point.value:
                registered = targets[entry_point.name]
                warnings.warn(
                    f"{entry_point.value} is ignored: {entry_point.name!r} in {kind} is already {registered}",
                    stacklevel=2,
                )
