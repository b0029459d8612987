"""Training and validation items that occur in the test split as well, exactly or nearly."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

from kinfold.audit.duplicates import FEATURE_SIMILARITY, PIXEL_SIMILARITY, THUMBNAIL, shrink
from kinfold.data import Dataset, decode
from kinfold.data.image_reading import ImageError
from kinfold.data.items import ImageFile, ImageFiles, Rows
from kinfold.files.checksums import compute_sha256
from kinfold.metrics import neighbors

MAX_ITEMS = 30_000  # rows of all splits, up to which near duplicates are looked for
MAX_IMAGES = 5_000  # the same for image files, which are read for it: about ten seconds
MIN_FEATURES = 16  # with fewer, close directions are common


def find_leakage(dataset: Dataset) -> list[tuple[int, int, bool]]:
    """Find training and validation items that are in the test split too.

    Rows are compared by their numbers, and up to 30,000 rows of 16 features or more by their cosines. Image files of
    the same size are compared by their bytes, and up to 5,000 files by small gray images, as in an audit. Anything else
    is not compared: `kinfold data audit` does that.

    Args:
        dataset: A dataset with the split "test" and at least one other.

    Returns:
        (training row, test row, whether they are exactly the same), one for each training row.
    """
    is_test = dataset.split == "test"
    train, test = (mask.nonzero()[0].tolist() for mask in (~is_test, is_test))
    if not train or not test:
        return []
    if isinstance(dataset.items, ImageFiles):
        exact = _match_files(dataset.items, train, test)
        is_small = len(train) + len(test) <= MAX_IMAGES
        return _add_near_images(exact, dataset.items, train, test) if is_small else exact
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


def _add_near_images(
    exact: list[tuple[int, int, bool]], items: ImageFiles, train: Sequence[int], test: Sequence[int]
) -> list[tuple[int, int, bool]]:
    """Add training images whose small gray image is nearly that of a test image."""
    pairs = {row: (row, other, same) for row, other, same in exact}
    with ThreadPoolExecutor(max_workers=2) as pool:
        left, right = (torch.stack([*pool.map(lambda row: _shrink(items[row]), rows)]) for rows in (train, test))
    keep = right.abs().sum(dim=1).nonzero().squeeze(1)  # an image of one color, or one that cannot be read, is zero
    if len(keep):
        values, indices = neighbors(left, right[keep], k=1)
        for position in (values[:, 0] >= PIXEL_SIMILARITY).nonzero().squeeze(1).tolist():
            row = train[position]
            pairs.setdefault(row, (row, test[int(keep[indices[position, 0]])], False))
    return [pairs[row] for row in sorted(pairs)]


def _shrink(file: ImageFile) -> torch.Tensor:
    try:
        return shrink(decode(file))
    except (ImageError, OSError):
        return torch.zeros(THUMBNAIL**2)


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
        for position in (values[:, 0] >= FEATURE_SIMILARITY).nonzero().squeeze(1).tolist():
            row = train[position]
            pairs.setdefault(row, (row, test[int(indices[position, 0])], False))
    return [pairs[row] for row in sorted(pairs)]
