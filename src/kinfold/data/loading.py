"""Batches of a dataset, decoded and augmented by worker processes while the network trains."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Sampler
from torch.utils.data import Dataset as TorchDataset

from kinfold.data.dataset import Dataset
from kinfold.data.image_reading import BACKGROUND, ImageError, Mode, parse_background
from kinfold.data.images import SKIP_HINT, Errors, check_errors, decode
from kinfold.data.items import Array, Rows
from kinfold.data.transforms import Transform, Warp
from kinfold.seeding import derive_generator


class Batch(NamedTuple):
    """One batch.

    Attributes:
        images: (B, C, H, W), uint8 unless normalized, or features (B, d).
        labels: int64 (B,).
        indices: Positions in the dataset, int64 (B,).
    """

    images: Tensor
    labels: Tensor
    indices: Tensor


class DrawKey(NamedTuple):
    """One draw of one item: all that its augmentation depends on, so that workers need no state."""

    epoch: int
    item: int
    draw: int  # 0 for the first time in this epoch: an item that comes twice is augmented differently


class Batches:
    """Iterate over the batches (images, labels, indices) of a dataset.

    The augmentation of an item depends only on (seed, epoch, item, how often it came before in the epoch). Any number
    of workers gives the same batches, and processes that share a sampler see the images that one process would see.

    Every iteration is a new epoch, with another order and other augmentations; `set_epoch` chooses its number.

    Args:
        dataset: The dataset.
        transform: Transform of single images; None if all images have the same size, or for features.
        normalize: Function of a batch of images, such as `Normalize`.
        batch_sampler: Yields lists of positions, such as a sampler of `kinfold.samplers`. If left out, items come in
            order, or shuffled.
        batch_size: Items per batch, without a `batch_sampler`. The last batch may be smaller.
        shuffle: Draw a new order from (seed, epoch) in every epoch. Not allowed with a `batch_sampler`.
        seed: Seed of the order and of the augmentation.
        workers: Number of worker processes; 0 reads in this process.
        mode: "RGB", or "L" for gray.
        errors: "raise" stops at an image that cannot be read; "skip" leaves it out of its batch, and adds its message
            to `skipped`.
        background: Color under transparent pixels, a name or "#rrggbb".

    Attributes:
        skipped: Error messages of skipped images by position in the dataset.

    Raises:
        ValueError: An argument is invalid, or `shuffle` is used with a `batch_sampler`.
        ImageError: While iterating: an image cannot be read and `errors` is "raise".
    """

    def __init__(
        self,
        dataset: Dataset,
        transform: Transform | None = None,
        normalize: Callable[[Tensor], Tensor] | None = None,
        batch_sampler: Iterable[list[int]] | None = None,
        batch_size: int = 64,
        shuffle: bool = False,
        seed: int = 0,
        workers: int = 0,
        mode: Mode = "RGB",
        errors: Errors = "raise",
        background: str = BACKGROUND,
    ) -> None:
        check_errors(errors)
        parse_background(background)
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        if batch_sampler is not None and shuffle:
            raise ValueError("a batch_sampler decides the order itself; leave shuffle out")
        self.dataset = dataset
        self.normalize = normalize
        self.errors = errors
        self.skipped: dict[int, str] = {}
        if batch_sampler is None:
            batch_sampler = SequentialBatches(0, len(dataset), batch_size, shuffle, seed)
        self._keys = _KeySampler(batch_sampler)
        # rows of an array that need no work are read a batch at a time, without a loader
        self._rows = _find_plain_rows(dataset, transform, mode)
        self._loader: DataLoader[_Sample] = DataLoader(
            _ItemReader(dataset, transform, mode, background, seed),
            batch_sampler=self._keys,
            collate_fn=_collate,
            num_workers=workers,
            persistent_workers=workers > 0,
            generator=torch.Generator().manual_seed(seed),  # otherwise torch would draw from the global generator
        )

    def __len__(self) -> int:
        return len(self._keys)

    def set_epoch(self, epoch: int, start: int = 0) -> None:
        """Choose the epoch of the next iteration, for the order of the items and for their augmentation.

        Args:
            epoch: Number of the epoch; later iterations count on from it.
            start: Number of batches to leave out at the beginning of the next iteration. They are not read.
        """
        self._keys.set_epoch(epoch, start)

    def __iter__(self) -> Iterator[Batch]:
        for images, indices, broken in self._read():
            if broken and self.errors == "raise":
                raise ImageError(f"{next(iter(broken.values()))}; {SKIP_HINT}")
            self.skipped.update(broken)
            if images is None:
                continue
            if self.normalize is not None:
                images = self.normalize(images)
            yield Batch(images, self.dataset.labels[indices], indices)

    def _read(self) -> "Iterable[_RawBatch]":
        return self._loader if self._rows is None else _read_rows(self._rows, self._keys.iterate_positions())


class SequentialBatches:
    """Positions first..last-1 in order or shuffled, `batch_size` at a time: a batch sampler for a part of a dataset.

    Examples:
        >>> [*SequentialBatches(3, 8, 2)], len(SequentialBatches(3, 8, 2))
        ([[3, 4], [5, 6], [7]], 3)
    """

    def __init__(self, first: int, last: int, batch_size: int, shuffle: bool = False, seed: int = 0) -> None:
        self.first, self.last, self.batch_size = first, last, batch_size
        self.shuffle, self.seed, self.epoch = shuffle, seed, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return -(-(self.last - self.first) // self.batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        order = torch.arange(self.first, self.last)
        if self.shuffle:
            order = order[torch.randperm(len(order), generator=derive_generator(self.seed, self.epoch))]
        for start in range(0, len(order), self.batch_size):
            yield order[start : start + self.batch_size].tolist()


class _KeySampler(Sampler[list[DrawKey]]):
    """The batches of a sampler with epoch and draw added to each position; it runs in the main process."""

    def __init__(self, batches: Iterable[list[int]]) -> None:
        self.batches = batches
        self.epoch = 0
        self.start = 0
        self.begun = False  # whether `epoch` has been iterated

    def set_epoch(self, epoch: int, start: int = 0) -> None:
        self.epoch, self.start, self.begun = epoch, start, False
        set_epoch = getattr(self.batches, "set_epoch", None)
        if set_epoch is not None:
            set_epoch(epoch)

    def __len__(self) -> int:
        return len(self.batches)  # type: ignore[arg-type]  # a sampler without a length raises its own error

    def iterate_positions(self) -> Iterator[list[int]]:
        """Iterate over the batches without keys, for items that need no random numbers."""
        return islice(iter(self.batches), self._begin(), None)

    def __iter__(self) -> Iterator[list[DrawKey]]:
        start = self._begin()
        # a sampler that shares batches over processes counts the draws of all of them
        iterate_draws = getattr(self.batches, "iterate_draws", None)
        draws = _count_draws(self.batches) if iterate_draws is None else iterate_draws()
        epoch = self.epoch if iterate_draws is None else self.batches.epoch  # type: ignore[attr-defined]
        for batch in islice(draws, start, None):
            yield [DrawKey(epoch, index, draw) for index, draw in batch]

    def _begin(self) -> int:
        """Begin an iteration, and with it a new epoch; returns the number of batches that it leaves out."""
        if self.begun:
            self.start = 0
            if not hasattr(self.batches, "iterate_draws"):  # samplers of kinfold count epochs themselves
                self.set_epoch(self.epoch + 1)
        self.begun = True
        return self.start


def _count_draws(batches: Iterable[list[int]]) -> Iterator[list[tuple[int, int]]]:
    """Yield every position with how often it came before."""
    counts: Counter[int] = Counter()
    for batch in batches:
        draws = []
        for index in map(int, batch):
            draws.append((index, counts[index]))
            counts[index] += 1
        yield draws


_Sample = tuple[int, Array | str]
_RawBatch = tuple[Tensor | None, Tensor, dict[int, str]]


class _ItemReader(TorchDataset[_Sample]):
    """Reads one item for a key; for an image that cannot be read it returns the error message."""

    def __init__(self, dataset: Dataset, transform: Transform | None, mode: Mode, background: str, seed: int) -> None:
        self.items, self.transform, self.mode, self.seed = dataset.items, transform, mode, seed
        self.background = background

    def __getitem__(self, key: DrawKey) -> _Sample:
        item = self.items[key.item]
        if isinstance(item, np.ndarray):
            if item.ndim == 1:
                return key.item, item  # a row of features
            if self.transform is None and _has_mode(item.shape, self.mode):
                return key.item, item
        try:
            image = decode(item, self.mode, self.background)
        except ImageError as error:
            return key.item, str(error)
        if self.transform is not None:
            image = self.transform(image, derive_generator(self.seed, *key))
        return key.item, np.asarray(image)


def _find_plain_rows(dataset: Dataset, transform: Transform | None, mode: Mode) -> Rows | None:
    """Return the items if a batch needs no work on single items: features, or images that no transform changes."""
    if not isinstance(dataset.items, Rows) or not len(dataset):
        return None
    shape = dataset.items[0].shape
    unchanged = transform is None or (isinstance(transform, Warp) and shape[:2] == (transform.size, transform.size))
    plain = len(shape) == 1 or (unchanged and _has_mode(shape, mode))
    return dataset.items if plain else None


def _has_mode(shape: tuple[int, ...], mode: Mode) -> bool:
    """Whether an array of this shape has the channels of the mode; a fourth channel is opacity."""
    return len(shape) == 2 if mode == "L" else len(shape) == 3 and shape[2] == 3


def _read_rows(rows: Rows, batches: Iterable[list[int]]) -> "Iterator[_RawBatch]":
    for batch in batches:
        positions = np.array(batch, dtype=np.int64)
        yield _to_tensor(rows.at(positions)), torch.from_numpy(positions), {}


def _collate(samples: list[_Sample]) -> _RawBatch:
    broken = {index: message for index, message in samples if isinstance(message, str)}
    readable = [(index, array) for index, array in samples if not isinstance(array, str)]
    indices = torch.tensor([index for index, _ in readable], dtype=torch.int64)
    if not readable:
        return None, indices, broken
    shapes = {array.shape for _, array in readable}
    if len(shapes) > 1:
        raise ValueError(
            f"a batch holds images of {len(shapes)} sizes, such as {' and '.join(map(str, sorted(shapes)[:2]))}; "
            "give a transform that crops to one size"
        )
    return _to_tensor(np.stack([array for _, array in readable])), indices, broken


def _to_tensor(arrays: Array) -> Tensor:
    """(B, d) as it is, (B, H, W) with one channel, (B, H, W, C) with the channels first."""
    batch = torch.from_numpy(arrays)
    if batch.ndim == 3:
        batch = batch[:, None]  # (B, 1, H, W)
    elif batch.ndim == 4:
        batch = batch.permute(0, 3, 1, 2).contiguous()  # (B, C, H, W); one copy of bytes, in the worker
    return batch
