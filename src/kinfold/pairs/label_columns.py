"""Several labels in one text, such as a column of a table: levels of a tree, or a set of tags."""

from collections.abc import Sequence

import torch
from torch import Tensor

from kinfold.pairs.labels import reindex


def read_levels(column: Sequence[str], separator: str = "/") -> Tensor:
    """Read paths in a tree of labels, such as "bird/wren", as a table for `tree_relation`.

    Args:
        column: A path for each item, from the coarsest to the finest label, all of the same number of levels.
        separator: What is between two levels.

    Returns:
        Integers (N, L). Two items have the same number in a level if their paths are equal up to it.

    Raises:
        ValueError: Paths have different numbers of levels, or a level is empty.

    Examples:
        >>> read_levels(["bird/wren", "bird/crow", "fish/cod", "bird/wren"])
        tensor([[0, 1],
                [0, 0],
                [1, 2],
                [0, 1]])
    """
    paths = [[level.strip() for level in text.split(separator)] for text in column]
    if not paths:
        raise ValueError("there are no paths to read: pass one for each item")
    depth = len(paths[0])
    for item, path in enumerate(paths):
        if len(path) != depth or not all(path):
            raise ValueError(
                f"item {item} has the path {column[item]!r}, which is not {depth} labels with {separator!r} between "
                "them, as that of the first item: all paths need the same number of levels, and none may be empty"
            )
    prefixes = [[separator.join(path[: level + 1]) for path in paths] for level in range(depth)]
    return torch.stack([reindex(names)[0] for names in prefixes], dim=1)


def read_tags(column: Sequence[str], separator: str = ";") -> tuple[Tensor, list[str]]:
    """Read sets of labels, such as "red;round", as a boolean table.

    `tags.int() @ tags.int().T > 0` is the relation of items that share a label, for losses and for `evaluate_graded`.
    The table itself is the relation of items and classes for losses with class vectors.

    Args:
        column: The labels of each item in any order; an empty text has none.
        separator: What is between two labels.

    Returns:
        Boolean (N, C), and the C labels in sorted order.

    Examples:
        >>> read_tags(["red;round", "", "round"])
        (tensor([[ True,  True],
                [False, False],
                [False,  True]]), ['red', 'round'])
    """
    sets = [{tag.strip() for tag in text.split(separator)} - {""} for text in column]
    names = sorted(set().union(*sets))
    position = {name: number for number, name in enumerate(names)}
    table = torch.zeros(len(sets), len(names), dtype=torch.bool)
    for item, tags in enumerate(sets):
        table[item, [position[tag] for tag in tags]] = True
    return table, names
