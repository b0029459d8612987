"""Checks of constructor options that several samplers share."""

from collections.abc import Sequence

from kinfold import registry
from kinfold.distributed import resolve_rank
from kinfold.samplers.class_index import ClassIndex

REPLACEMENT = ("when-needed", "never", "study")


def check_integer(least: int, **options: object) -> None:
    """ValueError for the first option that is not a whole number of at least `least`."""
    for name, value in options.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")


def check_choice(name: str, value: str, known: Sequence[str]) -> None:
    """ValueError where a word is none of the known ones."""
    if value not in known:
        hint = registry.suggest(value, known) if isinstance(value, str) else ""
        raise ValueError(f"{name} must be one of {', '.join(map(repr, known))}, got {value!r}{hint}")


def resolve_process(rank: int | None, ranks: int | None, batch_size: int) -> tuple[int, int]:
    """Return the rank and world size of this process, after checking that a batch can be shared by so many."""
    rank, ranks = resolve_rank(rank, ranks)
    if batch_size < ranks:
        raise ValueError(
            f"batch_size={batch_size} is the size over all ranks and cannot be shared by {ranks} of them; "
            f"raise it to at least {ranks}"
        )
    return rank, ranks


def select_classes(classes: ClassIndex, batch_size: int, per_class: int, replacement: str) -> ClassIndex:
    """The classes that batches of `per_class` items each are made of, after checking that they can be."""
    check_integer(1, batch_size=batch_size, per_class=per_class)
    check_choice("replacement", replacement, REPLACEMENT)
    if batch_size % per_class:
        below = batch_size - batch_size % per_class
        near = f"{below} or {below + per_class}" if below else f"{per_class}"
        raise ValueError(
            f"per_class={per_class} does not divide batch_size={batch_size}; "
            f"use a multiple of {per_class}, for example batch_size={near}"
        )
    if replacement == "study":
        return classes
    large = classes.keep_at_least(per_class) if replacement == "never" else classes
    needed, found = batch_size // per_class, len(large)
    if found < needed:
        which = f" with at least {per_class} items (replacement='never')" if replacement == "never" else ""
        lower = f"lower batch_size to at most {found * per_class}, " if found else ""
        raise ValueError(
            f"batch_size={batch_size} with per_class={per_class} needs {needed} classes, the labels have {found}{which}"
            f"; {lower}change per_class, or allow a class several times in a batch by replacement='study'"
        )
    return large


def resolve_batches(batches: int | None, classes: ClassIndex, batch_size: int, classes_per_batch: int) -> int:
    """Batches per epoch: as many as the items fill, and at least so many that every class has its turn."""
    if batches is not None:
        return batches
    return max(classes.count_items() // batch_size, -(-len(classes) // classes_per_batch))
