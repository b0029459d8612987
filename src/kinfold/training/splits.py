"""The items of a run: a dataset divided into training, validation and test classes."""

import warnings
from dataclasses import dataclass

import torch

from kinfold.data import Dataset, Pipeline, Rows, keep_readable, load
from kinfold.data.dropping import drop_items
from kinfold.data.folds import assign_fold
from kinfold.seeding import derive_generator
from kinfold.training.config.settings import PASSED, DataConfig
from kinfold.training.kept_results import cache_images_once
from kinfold.training.loop.trainer import Trainer

CACHE_LIMIT = 2 << 30  # bytes of decoded images, as in `cache_images`
_CLASS_SEED = 101  # tells the draw of validation classes from all other draws of a seed


@dataclass(frozen=True)
class Splits:
    """Three datasets without a common class; labels are counted from 0 in each."""

    train: Dataset
    validation: Dataset | None
    test: Dataset | None


class HeldOutTest:
    """The test classes of a run, which nothing may look at before training is over.

    Args:
        dataset: The test items.
    """

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset

    def open(self, trainer: Trainer) -> Dataset:
        """Return the test items for the final evaluation.

        Raises:
            RuntimeError: The trainer has steps left.
        """
        if not trainer.over:
            raise RuntimeError(
                "the held-out test classes stay closed until training is over; it is at step "
                f"{trainer.step_number} of {trainer.steps}"
            )
        return self._dataset

    def open_for_oracle(self) -> Dataset:
        """Return the test items for selection on them, which inflates the scores and is marked as such."""
        return self._dataset


def load_dataset(config: DataConfig) -> Dataset:
    """Load the dataset that the configuration names, and assign its splits."""
    if config.name == PASSED:
        raise ValueError(
            "this run was trained on a dataset that was passed in Python and is not stored with it; pass the same one "
            "again: kinfold.train(None, FOLDER, resume=True, dataset=...), or kinfold.Run.open(FOLDER, dataset). The "
            "command line can resume and open runs on files and folders only"
        )
    return assign_splits(load(config.name, config.root, **config.options), config)


def assign_splits(dataset: Dataset, config: DataConfig) -> Dataset:
    """Assign every item to the split that the protocol gives it, and leave out what the run may not read."""
    if config.drop is not None:
        dataset = drop_items(dataset, config.drop)
    dataset = assign_fold(dataset, config.protocol, config.fold)
    if config.test == "withheld":
        kept = dataset.split != "test"
        if not kept.any():
            raise ValueError(f"{dataset.name} has test items only, and nothing to train on")
        dataset = dataset.where(kept, relabel=True)
    if config.errors == "skip" and not isinstance(dataset.items, Rows):
        # once at the start, so that every process and every epoch reads the same items
        dataset, _ = keep_readable(dataset, errors="skip")
    return dataset


def split_classes(dataset: Dataset, config: DataConfig) -> Splits:
    """Divide a dataset into training, validation and test items.

    Where it has no validation split, `config.validation` of the training classes are held out.

    Raises:
        ValueError: There are no training items, or too few classes to hold some out.
    """
    present = {split for split in ("train", "validation", "test") if (dataset.split == split).any()}
    if "train" not in present:
        raise ValueError(f"{dataset.name} has no item in the split 'train'; it has {', '.join(sorted(present))}")
    train = dataset.subset("train")
    test = dataset.subset("test") if "test" in present else None
    if "validation" in present:
        return Splits(train, dataset.subset("validation"), test)
    if not config.validation:
        return Splits(train, None, test)
    count = len(train.classes)
    held_out = round(config.validation * count)
    if count < 2:
        raise ValueError(
            f"{dataset.name} has one training class, {train.classes[0]!r}: give two at least to learn what separates "
            "them, and one more to validate"
        )
    if held_out < 1 or count - held_out < 2:
        raise ValueError(
            f"data.validation={config.validation:g} of {count} training classes leaves {held_out} for validation and "
            f"{count - held_out} for training, of at least 1 and 2: choose another data.validation, or 0 to train on "
            "all classes"
        )
    classes = torch.randperm(count, generator=derive_generator(config.split_seed, _CLASS_SEED))[:held_out]
    mask = torch.isin(train.labels, classes)
    return Splits(train.where(~mask, relabel=True), train.where(mask, relabel=True), test)


def cache_in_memory(dataset: Dataset, config: DataConfig, pipeline: Pipeline | None) -> Dataset:
    """Decode all images once where the configuration asks for it."""
    if not config.cache or pipeline is None or isinstance(dataset.items, Rows):
        return dataset
    side = config.short_side
    expected = 0 if side is None else len(dataset) * 4 * side * side  # bytes of photos of 4 : 3 in color
    if expected > CACHE_LIMIT:
        warnings.warn(
            f"{len(dataset):,} images of {side} pixels do not fit into the {CACHE_LIMIT / 2**30:.0f} GiB of "
            "data.cache: they are read from disk in every epoch. A smaller data.short_side keeps them in memory",
            stacklevel=2,
        )
        return dataset
    return cache_images_once(dataset, config.short_side, pipeline.mode, max(1, config.workers), pipeline.background)
