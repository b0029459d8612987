"""The rows of a published table on a laptop: small data, a small network, few steps, and everything else as it is."""

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
from kinfold.training import splits
from kinfold.training.config import resolution
from kinfold.training.config.parsing import configure, merge_tables, to_tables
from kinfold.training.config.settings import DataConfig

STEPS = 200
LARGEST_DIM, LARGEST_BATCH = 128, 640
RATES = {"glyphs": 2e-3, "features": 1e-4}  # of the network
PROXY_RATE = 1e-3  # at least: proxies start at random, and there are few steps
EVALUATIONS = 4  # after the one at the start


@dataclass(frozen=True, eq=False)
class SmallScale:
    """What rows are run on instead: glyphs with conv4, or a head on a file of features.

    Kept are loss, miner, sampler, head and its start, mixup, memory and search; changed are data, network, learning
    rates and length, and what has to follow from those. Rows that agree on a setting in the paper agree on it here.
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
        return "glyphs" if self.features is None else "features"

    @cached_property
    def dataset(self) -> Dataset:
        return load("glyphs") if self.features is None else load("features", str(self.features))

    def table_settings(self, rows: Mapping[str, Settings]) -> dict[str, Settings]:
        """The tables of all rows of a published table on one data set, made small together.

        Embeddings and batches shrink to what the data can fill, and to what a row can divide among branches or classes.
        Rows with the same size in the paper all get the smallest of their sizes, so that none has an advantage.

        Args:
            rows: Name of a row -> its tables, for every row of the published table, whether it will be run or not.
        """
        small_rows = {name: self.settings(settings) for name, settings in rows.items()}
        _share(rows, small_rows, "model", "dim", LARGEST_DIM, _count_branches)
        _share(rows, small_rows, "sampler", "batch_size", None, _count_per_class)
        return small_rows

    def settings(self, given: Settings) -> Settings:
        """The tables of a row, made small without a look at the others of its table."""
        made = merge_tables(given)
        protocol = made.get("data", {}).get("protocol", "classic")
        made["data"] = {"name": self.name, "protocol": "classic" if protocol == "query-gallery" else protocol}
        if self.features is not None:
            made["data"]["root"] = str(self.features.resolve())
        made["model"] = self._model(made.get("model", {}))
        whole = configure(given)  # with what the tables leave to the defaults
        made["optimizer"] = self._optimizer(made.get("optimizer", {}), whole.loss.name)
        made["training"] = {"steps": self.steps}
        made["evaluation"] = self._evaluation(made.get("evaluation", {}))
        made["sampler"] = self._sampler(
            to_tables(whole.sampler), made["data"]["protocol"], made["evaluation"]["selection"]
        )
        if "mixup" in made:
            made["mixup"] = {**made["mixup"], "layers": self._layers(made["mixup"].get("layers", []))}
        made.pop("schedule", None)
        return made

    def _model(self, given: Mapping[str, Any]) -> Settings:
        # without its `init` a linear head would start from principal components and any other from random weights
        kept = {key: given[key] for key in ("head", "head_options", "init") if key in given}
        dim, width = min(given.get("dim", LARGEST_DIM), LARGEST_DIM), None
        if self.features is not None:
            width = int(self.dataset.items[0].shape[0])
            dim = min(dim, width)
        options = dict(given.get("head_options", {}))
        branches = options.get("branches", 1)
        if width is not None and width % branches:
            kept["head_options"] = {**options, "branch_input": "full"}  # no equal stretches for every branch
        return {"backbone": "conv4" if width is None else "features", "dim": max(1, dim - dim % branches), **kept}

    def _optimizer(self, given: Mapping[str, Any], loss: str) -> Settings:
        changed = {"name": "adam", "lr": RATES[self.name]}
        if "weight_decay" in given:
            changed["weight_decay"] = given["weight_decay"]
        known = signature(registry.resolve("losses", loss)).parameters
        if "num_classes" in known and known["num_classes"].default is Parameter.empty:
            changed["loss_lr"] = max(PROXY_RATE, given.get("loss_lr", 0.0))
        elif "loss_lr" in given:
            changed["loss_lr"] = given["loss_lr"]
        return changed

    def _evaluation(self, given: Mapping[str, Any]) -> Settings:
        made = {"selection": given.get("selection", "validation"), "every": max(1, self.steps // EVALUATIONS)}
        coarse = self.dataset.coarse is not None
        if "metrics" in given:
            names = [name if coarse else name.removesuffix("-coarse") for name in given["metrics"]]
            made["metrics"] = [*dict.fromkeys(names)]
        if "metric" in given:
            made["metric"] = given["metric"] if coarse else given["metric"].removesuffix("-coarse")
        return made

    def _sampler(self, given: Mapping[str, Any], protocol: Any, selection: Any) -> Settings:
        """With a batch that the training classes can fill."""
        classes, items = self._sizes(DataConfig(protocol=protocol), selection)
        size = min(given["batch_size"], LARGEST_BATCH, items)
        per_class = given.get("per_class", 1)
        groups = size // per_class
        if "per_class" in given and given.get("replacement") != "study":
            groups = min(groups, classes)
        return {**given, "batch_size": max(1, groups) * per_class}

    def _sizes(self, data: DataConfig, selection: str) -> tuple[int, int]:
        """How many classes and items train."""
        kept = self._known
        if (data.protocol, selection) not in kept:
            held = resolution.VALIDATION_SHARE if selection == "validation" else 0.0
            given = replace(data, validation=held, test="withheld")
            train = splits.split_classes(splits.assign_splits(self.dataset, given), given).train
            kept[data.protocol, selection] = (len(train.classes), len(train.labels))
        return kept[data.protocol, selection]

    @cached_property
    def _known(self) -> dict[tuple[str, str], tuple[int, int]]:
        return {}

    def _layers(self, given: Iterable[str]) -> list[str]:
        """The input stays; stages of the large network become those of the small one, in their order."""
        stages = iter(() if self.features is not None else Conv4.stages)
        found = [layer if layer == "input" else next(stages, None) for layer in given]
        return [layer for layer in found if layer is not None] or ["input"]


def _share(
    paper_rows: Mapping[str, Settings],
    small_rows: Mapping[str, Settings],
    table: str,
    key: str,
    default: Any,
    divisor: Callable[[Settings], int],
) -> None:
    """Give small rows that have the same size in the paper the largest size that all of them can have."""
    groups: dict[Any, list[Settings]] = {}
    for name, settings in paper_rows.items():
        groups.setdefault(settings.get(table, {}).get(key, default), []).append(small_rows[name])
    for rows in groups.values():
        step = math.lcm(*map(divisor, rows))
        smallest = min(row[table][key] for row in rows)
        if smallest >= step:
            for row in rows:
                row[table] = {**row[table], key: smallest - smallest % step}


def _count_branches(settings: Settings) -> int:
    return int(settings["model"].get("head_options", {}).get("branches", 1))


def _count_per_class(settings: Settings) -> int:
    return int(settings["sampler"].get("per_class", 1))


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, str]:
    """What was changed, key by key.

    >>> differences({"model": {"dim": 512, "pool": "max"}}, {"model": {"dim": 128}})
    {'model.dim': '512 -> 128', 'model.pool': 'max -> left out'}
    """
    old, new = dict(_flat(before)), dict(_flat(after))
    missing = "left out"
    return {
        key: f"{old.get(key, missing)} -> {new.get(key, missing)}"
        for key in dict.fromkeys([*old, *new])
        if old.get(key, missing) != new.get(key, missing)
    }


def _flat(tables: Mapping[str, Any], above: str = "") -> Iterable[tuple[str, Any]]:
    for key, value in tables.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value
