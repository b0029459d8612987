"""Checks and defaults of constructor arguments that several samplers share."""

from kinfold.distributed import resolve_rank
from kinfold.registry import check_choice
from kinfold.samplers.class_index import ClassIndex

REPLACEMENT = ("when-needed", "never", "study")


def check_integer(least: int, **options: object) -> None:
    """Raise a ValueError for the first option that is not an integer of at least `least`."""
    for name, value in options.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")


def resolve_process(rank: int | None, world_size: int | None, batch_size: int) -> tuple[int, int]:
    """Return the rank and world size of this process, after checking that each process gets an item of a batch."""
    rank, world_size = resolve_rank(rank, world_size)
    if batch_size < world_size:
        raise ValueError(
            f"batch_size={batch_size} is the size over all ranks and cannot be shared by {world_size} of them; "
            f"raise it to at least {world_size}"
        )
    return rank, world_size


def select_classes(classes: ClassIndex, batch_size: int, per_class: int, replacement: str) -> ClassIndex:
    """Return the classes to draw from, after checking that they can fill batches of `per_class` items each."""
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
    needed, available = batch_size // per_class, len(large)
    if available < needed:
        which = f" with at least {per_class} items (replacement='never')" if replacement == "never" else ""
        lower = f"lower batch_size to at most {available * per_class}, " if available else ""
        raise ValueError(
            f"batch_size={batch_size} with per_class={per_class} needs {needed} classes, the labels have "
            f"{available}{which}; {lower}change per_class, or allow a class several times in a batch by "
            "replacement='study'"
        )
    return large


def resolve_batches(batches: int | None, classes: ClassIndex, batch_size: int, classes_per_batch: int) -> int:
    """Return the batches per epoch: by default as many as the items fill, and enough for every class to come once."""
    if batches is not None:
        return batches
    return max(classes.count_items() // batch_size, -(-len(classes) // classes_per_batch))
