"""The datasets of runs, loaded once for all runs that use the same."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from kinfold.data import Dataset, load
from kinfold.data.fingerprint import compute_fingerprint
from kinfold.experiments.repeat import Repeat
from kinfold.training import Run
from kinfold.training.config.settings import DataConfig


class RunDatasets:
    """Loads the data of runs and keeps it.

    Args:
        dataset: The data of all runs, for runs whose configuration names none.
        images: The folder with the images of feature files, to which their column path is relative.
    """

    def __init__(self, dataset: Dataset | None = None, images: Path | str | None = None) -> None:
        self._dataset = dataset
        self._images = images
        self._loaded: dict[str, Dataset] = {}
        self._splits: dict[str, Mapping[str, Dataset]] = {}
        self._identities: dict[int, tuple[Dataset, str]] = {}

    def load_splits(self, run: Run | Repeat) -> Mapping[str, Dataset]:
        """Return the items of each split; the same objects for runs of the same data."""
        folds_together = isinstance(run, Repeat)
        settings = (run.runs[0] if isinstance(run, Repeat) else run).config.data
        key = f"{folds_together} {replace(settings, fold=0) if folds_together else settings!r}"
        if key not in self._splits:
            dataset = self._load(settings)
            if isinstance(run, Repeat):
                folds = [replace(fold, dataset=dataset) for fold in run.runs]
                self._splits[key] = replace(run, runs=folds).splits()
            else:
                self._splits[key] = replace(run, dataset=dataset).splits()
        return self._splits[key]

    def identify(self, dataset: Dataset) -> str:
        """Return a digest of the items and labels of a dataset."""
        if id(dataset) not in self._identities:
            # the dataset is kept as well, so that its id is not used again
            self._identities[id(dataset)] = (dataset, compute_fingerprint(dataset, full=True))
        return self._identities[id(dataset)][1]

    def _load(self, settings: DataConfig) -> Dataset:
        if self._dataset is not None:
            return self._dataset
        key = json.dumps([settings.name, settings.root, settings.options], sort_keys=True, default=str)
        if key not in self._loaded:
            options = dict(settings.options)
            if self._images is not None and settings.name == "features":
                options["images"] = self._images
            self._loaded[key] = load(settings.name, settings.root, **options)
        return self._loaded[key]
