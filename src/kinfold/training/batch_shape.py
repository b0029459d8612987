"""The shape of a batch for data with few or small classes."""

from collections.abc import Sequence

__all__ = ["fit_batch_shape"]


def fit_batch_shape(class_sizes: Sequence[int], batch_size: int, per_class: int) -> tuple[int, int]:
    """Fit the shape of a batch to the classes.

    A batch has `per_class` items, or as many as the largest class has, of each of batch_size // per_class classes.
    Where there are fewer classes, each gives more, until the batch is full or the smallest class has no more items.

    Args:
        class_sizes: Items of each class.
        batch_size: Items in a batch, at most.
        per_class: Items of each class in it.

    Returns:
        Items in a batch, and items of each class.

    Examples:
        >>> fit_batch_shape([60] * 100, batch_size=80, per_class=5)
        (80, 5)
        >>> fit_batch_shape([60] * 4, batch_size=80, per_class=5), fit_batch_shape([7, 9], batch_size=80, per_class=5)
        ((80, 20), (14, 7))
        >>> fit_batch_shape([3, 1, 1], batch_size=80, per_class=5)
        (9, 3)
    """
    per_class = min(per_class, max(class_sizes))
    classes = min(batch_size // per_class, len(class_sizes))
    if classes == len(class_sizes):
        per_class = max(per_class, min(batch_size // classes, min(class_sizes)))
    return classes * per_class, per_class
