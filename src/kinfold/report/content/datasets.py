"""The datasets of runs, loaded once for all runs that use the same."""

import json
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

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

    def load_audited(self, run: Run) -> Dataset:
        """Return all items of the data of a run, also those that it leaves out, as an audit counts them."""
        return self._load(run.config.data)

    def _load(self, settings: DataConfig) -> Dataset:
        if self._dataset is not None:
            return self._dataset
        key = json.dumps([settings.name, settings.root, settings.options], sort_keys=True, default=str)
        if key not in self._loaded:
            options = dict(settings.options)
            if settings.name == "features" and "images" not in options:
                images = self._images or find_images(Path(settings.root or ""))
                options |= {} if images is None else {"images": images}
            self._loaded[key] = load(settings.name, settings.root, **options)
        return self._loaded[key]


def find_images(file: Path) -> Path | None:
    """Return the folder with the images of an .npz feature file, beside it or named like it; None if there is none.

    The file has a column path, as `kinfold embed` writes it, and its first and last path lead to files there.
    """
    if file.suffix.lower() != ".npz" or not zipfile.is_zipfile(file):
        return None
    try:
        with np.load(file, allow_pickle=False) as columns:
            paths = columns["path"].astype(str) if "path" in columns.files else np.zeros(0, dtype=str)
    except (ValueError, OSError):  # the dataset explains what is wrong
        return None
    if paths.ndim != 1 or not len(paths) or not paths[0] or not paths[-1]:
        return None
    folders = (file.parent, file.with_suffix(""))
    return next((each for each in folders if all((each / paths[end]).is_file() for end in (0, -1))), None)
