"""Items of the training split that occur in the test split as well, exactly or nearly."""

from collections.abc import Sequence

import numpy as np
import torch

from kinfold.data import Dataset
from kinfold.data.items import ImageFiles, Rows
from kinfold.files.checksums import compute_sha256
from kinfold.metrics import neighbors

NEAR = 0.995  # cosine of features above which two items are near duplicates, as in an audit
MAX_ITEMS = 30_000  # of both splits, up to which near duplicates are looked for
MIN_FEATURES = 16  # with fewer, close directions are common


def find_leakage(dataset: Dataset) -> list[tuple[int, int, bool]]:
    """Find training items that are in the test split too.

    Rows are compared by their numbers, and up to 30,000 rows of 16 features or more by their cosines. Image files of
    the same size are compared by their bytes. Anything else is not compared: `kinfold data audit` compares pixels.

    Args:
        dataset: A dataset with the splits "train" and "test".

    Returns:
        (training row, test row, whether they are exactly the same), one for each training row.
    """
    train, test = ((dataset.split == name).nonzero()[0].tolist() for name in ("train", "test"))
    if not train or not test:
        return []
    if isinstance(dataset.items, ImageFiles):
        return _match_files(dataset.items, train, test)
    if isinstance(dataset.items, Rows) and np.ndim(dataset.items[0]) == 1:
        return _match_rows(dataset.items, train, test)
    return []


def describe_leakage(dataset: Dataset) -> str | None:
    """Return a warning about training items that are in the test split too; None where there are none."""
    pairs = find_leakage(dataset)
    if not pairs:
        return None
    exact = sum(same for _, _, same in pairs)
    row, other, _ = pairs[0]
    return (
        f"{dataset.name}: {len(pairs):,} training items are in the test split too ({exact:,} exactly; such as "
        f"rows {row} and {other}): scores on the test classes are too good. "
        "`kinfold data audit` lists what to leave out (--drop)"
    )


def _match_files(items: ImageFiles, train: Sequence[int], test: Sequence[int]) -> list[tuple[int, int, bool]]:
    paths = {row: items[row].path for row in (*train, *test)}
    sizes = {row: path.stat().st_size if path.is_file() else -1 for row, path in paths.items()}
    candidates: dict[int, list[int]] = {}
    for row in test:
        candidates.setdefault(sizes[row], []).append(row)
    digests: dict[int, str] = {}

    def digest(row: int) -> str:
        if row not in digests:
            digests[row] = compute_sha256(paths[row].read_bytes()) + str(items[row].box)
        return digests[row]

    pairs = []
    for row in train:
        same = [other for other in candidates.get(sizes[row], []) if sizes[row] > 0 and digest(other) == digest(row)]
        pairs += [(row, same[0], True)] if same else []
    return pairs


def _match_rows(items: Rows, train: Sequence[int], test: Sequence[int]) -> list[tuple[int, int, bool]]:
    known = {np.ascontiguousarray(items[row]).tobytes(): row for row in reversed(test)}
    pairs = {}
    for row in train:
        other = known.get(np.ascontiguousarray(items[row]).tobytes())
        if other is not None:
            pairs[row] = (row, other, True)
    if len(train) + len(test) <= MAX_ITEMS and len(items[0]) >= MIN_FEATURES:
        left, right = (torch.from_numpy(items.at(np.array(rows)).astype(np.float32)) for rows in (train, test))
        values, indices = neighbors(left, right, k=1)
        for position in (values[:, 0] >= NEAR).nonzero().squeeze(1).tolist():
            row = train[position]
            pairs.setdefault(row, (row, test[int(indices[position, 0])], False))
    return [pairs[row] for row in sorted(pairs)]
