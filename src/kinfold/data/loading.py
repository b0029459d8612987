"""Batches of a data set: decoded and augmented by worker processes while the network trains."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Sampler
from torch.utils.data import Dataset as TorchDataset

from kinfold.data.dataset import Dataset
from kinfold.data.images import Errors, ImageError, Mode, check_errors, decode
from kinfold.data.items import Array
from kinfold.data.seeds import derived
from kinfold.data.transforms import Transform


class Batch(NamedTuple):
    """images: (B, C, H, W), uint8 unless normalised, or features (B, d); labels and indices: int64 (B,)."""

    images: Tensor
    labels: Tensor
    indices: Tensor


class Key(NamedTuple):
    """One draw of one item. It carries all that its augmentation depends on, so that workers need no state."""

    epoch: int
    item: int
    draw: int  # 0 for the first time in this epoch: an item that comes twice is augmented in two ways


class Batches:
    """Iterate over (images, labels, indices).

    The augmentation of an item depends on (seed, epoch, item, how often it came before in the epoch) alone: any number
    of workers gives the same batches. `batch_sampler` gives lists of positions (any of kinfold.samplers); without it
    items come in order, or in an order drawn from (seed, epoch) with `shuffle=True`, `batch_size` at a time.

    `errors="raise"` stops at an image that cannot be read; `"skip"` leaves it out of its batch and notes it in
    `skipped`: position -> what was wrong.
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
    ) -> None:
        check_errors(errors)
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
        self._loader: DataLoader[_Sample] = DataLoader(
            _Reader(dataset, transform, mode, seed),
            batch_sampler=self._keys,
            collate_fn=_collate,
            num_workers=workers,
            persistent_workers=workers > 0,
            generator=torch.Generator().manual_seed(seed),  # else torch would draw from the global one
        )

    def __len__(self) -> int:
        return len(self._keys)

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch, for the order of the items and for their augmentation."""
        self._keys.set_epoch(epoch)

    def __iter__(self) -> Iterator[Batch]:
        for images, indices, broken in self._loader:
            if broken and self.errors == "raise":
                raise ImageError(f"{next(iter(broken.values()))}; errors='skip' leaves such images out")
            self.skipped.update(broken)
            if images is None:
                continue
            if self.normalize is not None:
                images = self.normalize(images)
            yield Batch(images, self.dataset.labels[indices], indices)


class _Keys(Sampler[list[Key]]):
    """The batches of a sampler with epoch and draw beside each position; it runs in the main process."""

    def __init__(self, batches: Iterable[list[int]]) -> None:
        self.batches = batches
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch
        choose = getattr(self.batches, "set_epoch", None)
        if choose is not None:
            choose(epoch)

    def __len__(self) -> int:
        return len(self.batches)  # type: ignore[arg-type]  # a sampler without a length says so itself

    def __iter__(self) -> Iterator[list[Key]]:
        epoch = self.epoch
        drawn: Counter[int] = Counter()
        for batch in self.batches:
            keys = []
            for index in batch:
                keys.append(Key(epoch, int(index), drawn[int(index)]))
                drawn[int(index)] += 1
            yield keys


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
            order = torch.randperm(self.count, generator=derived(self.seed, self.epoch))
        for start in range(0, self.count, self.batch_size):
            yield order[start : start + self.batch_size].tolist()


_Sample = tuple[int, Array | str]
_Read = tuple[Tensor | None, Tensor, dict[int, str]]


class _Reader(TorchDataset[_Sample]):
    """Reads one item for a key; an image that cannot be read comes back as words, for the main process to judge."""

    def __init__(self, dataset: Dataset, transform: Transform | None, mode: Mode, seed: int) -> None:
        self.items, self.transform, self.mode, self.seed = dataset.items, transform, mode, seed

    def __getitem__(self, key: Key) -> _Sample:
        item = self.items[key.item]
        if isinstance(item, np.ndarray):
            if item.ndim == 1:
                return key.item, item  # a row of features
            if self.transform is None and item.ndim == (2 if self.mode == "L" else 3):
                return key.item, item
        try:
            image = decode(item, self.mode)
        except ImageError as problem:
            return key.item, str(problem)
        if self.transform is not None:
            image = self.transform(image, derived(self.seed, *key))
        return key.item, np.asarray(image)


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
    stacked = torch.from_numpy(np.stack([found for _, found in good]))
    if stacked.ndim == 3:
        stacked = stacked[:, None]  # (B, 1, H, W)
    elif stacked.ndim == 4:
        stacked = stacked.permute(0, 3, 1, 2).contiguous()  # (B, C, H, W); one copy of bytes, in the worker
    return stacked, indices, broken
