"""The data of runs, read once for all that learned from the same, and their identities."""

import json
from collections.abc import Mapping
from dataclasses import replace

from kinfold.data import Dataset, load
from kinfold.data.fingerprint import compute_fingerprint
from kinfold.experiments.repeat import Repeat
from kinfold.training import Run
from kinfold.training.config.settings import DataConfig


class Library:
    """`dataset`: what all runs learned from, where no configuration names it."""

    def __init__(self, dataset: Dataset | None = None) -> None:
        self._given = dataset
        self._loaded: dict[str, Dataset] = {}
        self._splits: dict[str, Mapping[str, Dataset]] = {}
        self._known: dict[int, tuple[Dataset, str]] = {}

    def splits(self, made: Run | Repeat) -> Mapping[str, Dataset]:
        """The items of each split; the same objects for runs of the same data."""
        first = made.runs[0] if isinstance(made, Repeat) else made
        settings = first.config.data
        together = isinstance(made, Repeat)
        asked = f"{together} {replace(settings, fold=0) if together else settings!r}"
        if asked not in self._splits:
            dataset = self._dataset(settings)
            if isinstance(made, Repeat):
                runs = [replace(run, dataset=dataset) for run in made.runs]
                self._splits[asked] = replace(made, runs=runs).splits()
            else:
                self._splits[asked] = replace(made, dataset=dataset).splits()
        return self._splits[asked]

    def identity(self, dataset: Dataset) -> str:
        """One word for its items and labels."""
        if id(dataset) not in self._known:
            # the dataset is kept, so that its id stays its own
            self._known[id(dataset)] = (dataset, compute_fingerprint(dataset, full=True))
        return self._known[id(dataset)][1]

    def _dataset(self, settings: DataConfig) -> Dataset:
        if self._given is not None:
            return self._given
        asked = json.dumps([settings.name, settings.root, settings.options], sort_keys=True, default=str)
        if asked not in self._loaded:
            self._loaded[asked] = load(settings.name, settings.root, **settings.options)
        return self._loaded[asked]
