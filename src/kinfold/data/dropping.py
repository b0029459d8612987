"""Leave out the items of a dataset that a CSV file of an audit names."""

from pathlib import Path

import numpy as np

from kinfold.data.column_files import read_columns
from kinfold.data.dataset import Dataset
from kinfold.data.items import Array


def drop_items(dataset: Dataset, file: Path | str) -> Dataset:
    """Return a dataset without the rows that an audit, or you, marked with drop = yes.

    Args:
        dataset: The dataset that was audited.
        file: The CSV file, with the columns row, drop and class.

    Returns:
        The other items; classes without items are gone.

    Raises:
        ValueError: The file is of another dataset, or would leave nothing.

    Examples:
        >>> from kinfold.data import Rows, create_dataset
        >>> data = create_dataset("birds", Rows(np.eye(3)), ["wren", "crow", "wren"], ["train"] * 3)
        >>> path = getfixture("tmp_path") / "audit.csv"
        >>> _ = path.write_text("row,drop,class\\n0,yes,wren\\n1,no,crow\\n")
        >>> len(drop_items(data, path))
        2
    """
    keep = ~find_marked(dataset, file)
    if not keep.any():
        raise ValueError(f"{file} would leave no item of {dataset.name}")
    return dataset if keep.all() else dataset.where(keep, relabel=True)


def find_marked(dataset: Dataset, file: Path | str) -> Array:
    """Return a boolean mask (N,) of the rows that an audit, or you, marked with drop = yes.

    Args:
        dataset: The dataset that was audited.
        file: The CSV file, with the columns row, drop and class.

    Raises:
        ValueError: The file is of another dataset.
    """
    columns = read_columns(file)
    hint = "Give a file that kinfold data audit --out FILE.csv wrote"
    marks, labels = columns.require("drop", hint), columns.require("class", hint)
    try:
        rows = columns.require("row").astype(np.int64)
    except ValueError as error:
        raise ValueError(f"{file}: the column row must hold integers: {error}") from None
    marked = np.zeros(len(dataset), dtype=bool)
    for row, mark, label in zip(rows.tolist(), marks.tolist(), labels.tolist(), strict=True):
        if mark not in ("yes", "no"):
            raise ValueError(f"{file}: drop must be yes or no, got {mark!r} for row {row}")
        if not 0 <= row < len(dataset) or dataset.classes[int(dataset.labels[row])] != label:
            raise ValueError(
                f"{file} is of another dataset: row {row} of {dataset.name} is not of the class {label!r}; audit this "
                "dataset again"
            )
        marked[row] |= mark == "yes"
    return marked
