"""Rows of a published table for a laptop: small data, a small network and few steps; other settings stay."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

from kinfold import registry
from kinfold.data import Dataset, load
from kinfold.models.conv4 import Conv4
from kinfold.papers.published import Settings
from kinfold.papers.small_ratios import LARGEST_BATCH, keep_imbalance, keep_lengths, keep_pair_counts
from kinfold.training import splits
from kinfold.training.config import resolution
from kinfold.training.config.parsing import configure, merge_tables, to_tables
from kinfold.training.config.settings import DataConfig

STEPS = 200
LARGEST_DIM = 128
RATES = {"glyphs": 2e-3, "features": 1e-4}  # of the network
PROXY_RATE = 1e-3  # smallest rate of proxies, which start at random and have few steps
EVALUATIONS = 4  # after the one at the start


@dataclass(frozen=True, eq=False)
class SmallScale:
    """Small data for the rows of a published table: glyphs with conv4, or a head on a file of features.

    Loss, miner, sampler, head and its initialization, mixup, memory and search stay. Data, network, learning rates and
    length change, and what follows from them. Rows that agree on a setting in the paper agree on it here, and rows that
    differ in size keep their ratios: see `kinfold.papers.small_ratios`.

    Args:
        steps: Number of training steps.
        features: An .npz file with embeddings and labels; glyphs where None.
    """

    steps: int = STEPS
    features: Path | None = None

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"--steps must be at least 1, got {self.steps}")
        if self.features is not None and not self.features.is_file():
            raise ValueError(f"there is no file {self.features} for --features; it is an .npz with embeddings, labels")

    @property
    def name(self) -> str:
        """Name of the data set."""
        return "glyphs" if self.features is None else "features"

    @cached_property
    def dataset(self) -> Dataset:
        """The data set."""
        return load("glyphs") if self.features is None else load("features", str(self.features))

    def shrink_rows(self, rows: Mapping[str, Settings], timed: bool = False) -> dict[str, Settings]:
        """Shrink all rows of a published table on one data set together.

        Embeddings and batches shrink to what the data can fill, and to what a row can divide among branches or classes.
        Rows with the same size in the paper all get the smallest of their sizes, so that none has an advantage.

        Args:
            rows: Row -> its settings, for every row of the published table, whether it will be run or not.
            timed: Rows are timed and not trained: batches are as large as the data allow, whatever their ratios.

        Returns:
            Row -> its settings at small scale.
        """
        small_rows = {name: self.shrink(settings) for name, settings in rows.items()}
        _equalize_sizes(rows, small_rows, "model", "dim", LARGEST_DIM, _count_branches)
        _equalize_sizes(rows, small_rows, "sampler", "batch_size", None, _count_per_class)
        if not timed:
            for name, sampler in keep_imbalance(rows, self._count_classes(small_rows)).items():
                small_rows[name]["sampler"] = sampler
        for name, settings in rows.items():
            small_rows[name] |= keep_pair_counts(settings, small_rows[name])
        for name, steps in keep_lengths(rows, self.steps).items():
            small_rows[name]["training"] = {"steps": steps}
            if "every" in rows[name].get("evaluation", {}):
                small_rows[name]["evaluation"]["every"] = max(1, steps // EVALUATIONS)
        return small_rows

    def shrink(self, settings: Settings) -> Settings:
        """Shrink one row, independently of the others of its table.

        Args:
            settings: Settings of the row.

        Returns:
            Its settings at small scale.
        """
        tables = merge_tables(settings)
        protocol = tables.get("data", {}).get("protocol", "classic")
        tables["data"] = {"name": self.name, "protocol": "classic" if protocol == "query-gallery" else protocol}
        if self.features is not None:
            tables["data"]["root"] = str(self.features.resolve())
        tables["model"] = self._shrink_model(tables.get("model", {}))
        config = configure(settings)  # with all defaults
        tables["optimizer"] = self._shrink_optimizer(tables.get("optimizer", {}), config.loss.name)
        tables["training"] = {"steps": 0 if config.training.steps == 0 else self.steps}  # 0: an untrained row
        tables["evaluation"] = self._shrink_evaluation(tables.get("evaluation", {}))
        tables["sampler"] = self._shrink_sampler(
            to_tables(config.sampler), tables["data"]["protocol"], tables["evaluation"]["selection"]
        )
        if "mixup" in tables:
            tables["mixup"] = {**tables["mixup"], "layers": self._replace_layers(tables["mixup"].get("layers", []))}
        tables.pop("schedule", None)
        return tables

    def _shrink_model(self, table: Mapping[str, Any]) -> Settings:
        # without its `init` a linear head would start from principal components and any other from random weights
        head = {key: table[key] for key in ("head", "head_options", "init") if key in table}
        if table.get("head") == "identity":  # the features as they are, whatever their width
            size = Conv4().width if self.features is None else int(self.dataset.items[0].shape[0])
            return {"backbone": "conv4" if self.features is None else "features", "dim": size, **head}
        dim, width = min(table.get("dim", LARGEST_DIM), LARGEST_DIM), None
        if self.features is not None:
            width = int(self.dataset.items[0].shape[0])
            dim = min(dim, width)
        options = dict(table.get("head_options", {}))
        branches = _count_branches({"model": table})
        if table.get("head") == "relational" and width is not None and width % branches:
            head["head_options"] = {**options, "branch_input": "full"}  # the width cannot be divided among branches
        return {"backbone": "conv4" if width is None else "features", "dim": max(1, dim - dim % branches), **head}

    def _shrink_optimizer(self, table: Mapping[str, Any], loss: str) -> Settings:
        optimizer = {"name": "adam", "lr": RATES[self.name]}
        if "weight_decay" in table:
            optimizer["weight_decay"] = table["weight_decay"]
        parameters = signature(registry.resolve("losses", loss)).parameters
        if "num_classes" in parameters and parameters["num_classes"].default is Parameter.empty:
            optimizer["loss_lr"] = max(PROXY_RATE, table.get("loss_lr", 0.0))
        elif "loss_lr" in table:
            optimizer["loss_lr"] = table["loss_lr"]
        return optimizer

    def _shrink_evaluation(self, table: Mapping[str, Any]) -> Settings:
        evaluation = {"selection": table.get("selection", "validation"), "every": max(1, self.steps // EVALUATIONS)}
        coarse = self.dataset.coarse is not None
        if "metrics" in table:
            names = [name if coarse else name.removesuffix("-coarse") for name in table["metrics"]]
            evaluation["metrics"] = [*dict.fromkeys(names)]
        if "metric" in table:
            evaluation["metric"] = table["metric"] if coarse else table["metric"].removesuffix("-coarse")
        return evaluation

    def _shrink_sampler(self, table: Mapping[str, Any], protocol: Any, selection: Any) -> Settings:
        """The sampler with a batch that the training classes can fill."""
        classes, items = self._count_training_data(DataConfig(protocol=protocol), selection)
        size = min(table["batch_size"], LARGEST_BATCH, items)
        per_class = table.get("per_class", 1)
        groups = size // per_class
        if "per_class" in table and table.get("replacement") != "study":
            groups = min(groups, classes)
        return {**table, "batch_size": max(1, groups) * per_class}

    def _count_classes(self, rows: Mapping[str, Settings]) -> int:
        """The fewest training classes that a row has."""
        return min(
            self._count_training_data(DataConfig(protocol=row["data"]["protocol"]), row["evaluation"]["selection"])[0]
            for row in rows.values()
        )

    def _count_training_data(self, data: DataConfig, selection: str) -> tuple[int, int]:
        """Number of training classes and items."""
        counts = self._counts
        if (data.protocol, selection) not in counts:
            held = resolution.VALIDATION_SHARE if selection == "validation" else 0.0
            config = replace(data, validation=held, test="withheld")
            train = splits.split_classes(splits.assign_splits(self.dataset, config), config).train
            counts[data.protocol, selection] = (len(train.classes), len(train.labels))
        return counts[data.protocol, selection]

    @cached_property
    def _counts(self) -> dict[tuple[str, str], tuple[int, int]]:
        return {}

    def _replace_layers(self, layers: Iterable[str]) -> list[str]:
        """The stages of the small network instead of those of the large one, in order; the input stays."""
        stages = iter(() if self.features is not None else Conv4.stages)
        replaced = [layer if layer == "input" else next(stages, None) for layer in layers]
        return [layer for layer in replaced if layer is not None] or ["input"]


def _equalize_sizes(
    paper_rows: Mapping[str, Settings],
    small_rows: Mapping[str, Settings],
    table: str,
    key: str,
    default: Any,
    divisor: Callable[[Settings], int],
) -> None:
    """Set the size of small rows with the same size in the paper to the largest that all of them can have."""
    groups: dict[Any, list[Settings]] = {}
    for name, settings in paper_rows.items():
        groups.setdefault(settings.get(table, {}).get(key, default), []).append(small_rows[name])
    for rows in groups.values():
        step = math.lcm(*map(divisor, rows))
        smallest = min(row[table][key] for row in rows)
        if smallest >= step:
            for row in rows:
                row[table] = {**row[table], key: smallest - smallest % step}


def _count_branches(settings: Mapping[str, Any]) -> int:
    options = settings["model"].get("head_options", {})
    return len(options["shares"]) if "shares" in options else int(options.get("branches", 1))


def _count_per_class(settings: Settings) -> int:
    return int(settings["sampler"].get("per_class", 1))


def describe_differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, str]:
    """Describe changed settings, key by key.

    Examples:
        >>> describe_differences({"model": {"dim": 512, "pool": "max"}}, {"model": {"dim": 128}})
        {'model.dim': '512 -> 128', 'model.pool': 'max -> left out'}
    """
    old, new = dict(_flatten(before)), dict(_flatten(after))
    missing = "left out"
    return {
        key: f"{old.get(key, missing)} -> {new.get(key, missing)}"
        for key in dict.fromkeys([*old, *new])
        if old.get(key, missing) != new.get(key, missing)
    }


def _flatten(tables: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for key, value in tables.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
