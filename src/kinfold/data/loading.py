"""Batches of a data set: decoded and augmented by worker processes while the network trains."""

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
    """images: (B, C, H, W), uint8 unless normalised, or features (B, d); labels and indices: int64 (B,)."""

    images: Tensor
    labels: Tensor
    indices: Tensor


class DrawKey(NamedTuple):
    """One draw of one item. It carries all that its augmentation depends on, so that workers need no state."""

    epoch: int
    item: int
    draw: int  # 0 for the first time in this epoch: an item that comes twice is augmented in two ways


class Batches:
    """Iterate over (images, labels, indices).

    The augmentation of an item depends on (seed, epoch, item, how often it came before in the epoch) alone: any number
    of workers gives the same batches, and ranks that share a sampler see the pictures that one process would see.
    Every iteration is a new epoch, with an order and augmentations of its own; `set_epoch` chooses its number.
    `batch_sampler` gives lists of positions (any of kinfold.samplers); without it items come in order, or in an order
    drawn from (seed, epoch) with `shuffle=True`, `batch_size` at a time.

    `errors="raise"` stops at an image that cannot be read; `"skip"` leaves it out of its batch and notes it in
    `skipped`: position -> what was wrong. Transparent pixels are drawn on `background`, a name or "#rrggbb".
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
        order = _InOrder(len(dataset), batch_size, shuffle, seed) if batch_sampler is None else batch_sampler
        self._keys = _Keys(order)
        # rows of an array that need no work of their own are taken a batch at a time, without a loader
        self._rows = _whole_rows(dataset, transform, mode)
        self._loader: DataLoader[_Sample] = DataLoader(
            _Reader(dataset, transform, mode, background, seed),
            batch_sampler=self._keys,
            collate_fn=_collate,
            num_workers=workers,
            persistent_workers=workers > 0,
            generator=torch.Generator().manual_seed(seed),  # else torch would draw from the global one
        )

    def __len__(self) -> int:
        return len(self._keys)

    def set_epoch(self, epoch: int, start: int = 0) -> None:
        """Choose the epoch of the next iteration, for the order of the items and for their augmentation; it leaves out
        the first `start` batches without reading them. Later iterations count on from there."""
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

    def _read(self) -> "Iterable[_Read]":
        return self._loader if self._rows is None else _read_rows(self._rows, self._keys.positions())


class _Keys(Sampler[list[DrawKey]]):
    """The batches of a sampler with epoch and draw beside each position; it runs in the main process."""

    def __init__(self, batches: Iterable[list[int]]) -> None:
        self.batches = batches
        self.epoch = 0
        self.start = 0
        self.begun = False  # whether `epoch` has been iterated

    def set_epoch(self, epoch: int, start: int = 0) -> None:
        self.epoch, self.start, self.begun = epoch, start, False
        choose = getattr(self.batches, "set_epoch", None)
        if choose is not None:
            choose(epoch)

    def __len__(self) -> int:
        return len(self.batches)  # type: ignore[arg-type]  # a sampler without a length says so itself

    def positions(self) -> Iterator[list[int]]:
        """The batches alone, for items that nothing is drawn for."""
        return islice(iter(self.batches), self._begin(), None)

    def __iter__(self) -> Iterator[list[DrawKey]]:
        start = self._begin()
        # a sampler that shares batches over ranks counts the draws of all ranks
        shared = getattr(self.batches, "iterate_draws", None)
        draws = _counted(self.batches) if shared is None else shared()
        epoch = self.epoch if shared is None else self.batches.epoch  # type: ignore[attr-defined]
        for batch in islice(draws, start, None):
            yield [DrawKey(epoch, index, draw) for index, draw in batch]

    def _begin(self) -> int:
        """Begin an iteration, and with it a new epoch; returns how many batches it leaves out."""
        if self.begun:
            self.start = 0
            if not hasattr(self.batches, "iterate_draws"):  # our own samplers count epochs themselves
                self.set_epoch(self.epoch + 1)
        self.begun = True
        return self.start


def _counted(batches: Iterable[list[int]]) -> Iterator[list[tuple[int, int]]]:
    """Every position with how often it came before."""
    drawn: Counter[int] = Counter()
    for batch in batches:
        found = []
        for index in map(int, batch):
            found.append((index, drawn[index]))
            drawn[index] += 1
        yield found


class _InOrder:
    """Positions in order or shuffled, in batches; the last one may be smaller."""

    def __init__(self, count: int, batch_size: int, shuffle: bool, seed: int) -> None:
        self.count, self.batch_size, self.shuffle, self.seed = count, batch_size, shuffle, seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return -(-self.count // self.batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        order = torch.arange(self.count)
        if self.shuffle:
            order = torch.randperm(self.count, generator=derive_generator(self.seed, self.epoch))
        for start in range(0, self.count, self.batch_size):
            yield order[start : start + self.batch_size].tolist()


class SequentialBatches:
    """Positions first..last-1 in order, some at a time: a batch sampler for a part of a data set.

    >>> [*SequentialBatches(3, 8, 2)], len(SequentialBatches(3, 8, 2))
    ([[3, 4], [5, 6], [7]], 3)
    """

    def __init__(self, first: int, last: int, batch_size: int) -> None:
        self.first, self.last, self.batch_size = first, last, batch_size

    def __len__(self) -> int:
        return -(-(self.last - self.first) // self.batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        for start in range(self.first, self.last, self.batch_size):
            yield [*range(start, min(self.last, start + self.batch_size))]


_Sample = tuple[int, Array | str]
_Read = tuple[Tensor | None, Tensor, dict[int, str]]


class _Reader(TorchDataset[_Sample]):
    """Reads one item for a key; an image that cannot be read comes back as words, for the main process to judge."""

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
        except ImageError as problem:
            return key.item, str(problem)
        if self.transform is not None:
            image = self.transform(image, derive_generator(self.seed, *key))
        return key.item, np.asarray(image)


def _whole_rows(dataset: Dataset, transform: Transform | None, mode: Mode) -> Rows | None:
    """The items where a batch of them is a stretch of rows: features, or images that are not transformed."""
    if not isinstance(dataset.items, Rows) or not len(dataset):
        return None
    shape = dataset.items[0].shape
    unchanged = transform is None or (isinstance(transform, Warp) and shape[:2] == (transform.size, transform.size))
    plain = len(shape) == 1 or (unchanged and _has_mode(shape, mode))
    return dataset.items if plain else None


def _has_mode(shape: tuple[int, ...], mode: Mode) -> bool:
    """Whether an array of this shape has the channels of the mode; a fourth channel is transparency."""
    return len(shape) == 2 if mode == "L" else len(shape) == 3 and shape[2] == 3


def _read_rows(rows: Rows, batches: Iterable[list[int]]) -> "Iterator[_Read]":
    for batch in batches:
        positions = np.array(batch, dtype=np.int64)
        yield _stacked(rows.at(positions)), torch.from_numpy(positions), {}


def _collate(samples: list[_Sample]) -> _Read:
    broken = {index: found for index, found in samples if isinstance(found, str)}
    good = [(index, found) for index, found in samples if not isinstance(found, str)]
    indices = torch.tensor([index for index, _ in good], dtype=torch.int64)
    if not good:
        return None, indices, broken
    shapes = {found.shape for _, found in good}
    if len(shapes) > 1:
        raise ValueError(
            f"a batch holds images of {len(shapes)} sizes, such as {' and '.join(map(str, sorted(shapes)[:2]))}; "
            "give a transform that crops to one size"
        )
    return _stacked(np.stack([found for _, found in good])), indices, broken


def _stacked(arrays: Array) -> Tensor:
    """(B, d) as it is, (B, H, W) with one channel, (B, H, W, C) with the channels first."""
    stacked = torch.from_numpy(arrays)
    if stacked.ndim == 3:
        stacked = stacked[:, None]  # (B, 1, H, W)
    elif stacked.ndim == 4:
        stacked = stacked.permute(0, 3, 1, 2).contiguous()  # (B, C, H, W); one copy of bytes, in the worker
    return stacked
