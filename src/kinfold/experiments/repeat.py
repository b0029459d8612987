"""One repeat of a protocol: a run for every fold, and their scores on the held-out test classes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from kinfold.data import Dataset, Pipeline
from kinfold.data.folds import count_folds
from kinfold.files.checksums import SHA256, compute_sha256
from kinfold.files.documents import nan_to_null, read_result, write_result
from kinfold.files.paths import check_path, read_bytes
from kinfold.metrics import Distance
from kinfold.models.concatenated import ConcatenatedEmbedder, concatenate_embeddings
from kinfold.training import Run, splits
from kinfold.training.evaluation import compute_metrics
from kinfold.training.run import select_split
from kinfold.training.run_folder import METRICS

Scores = dict[str, Any]
SCORES = {
    "folds": int,
    "inflated": bool,
    "validation": METRICS,
    "train_space": METRICS,
    "separated": METRICS,
    "concatenated?": METRICS,
    "start?": {str: METRICS},
    "runs?": [SHA256],
}


def fold_folder(folder: Path, fold: int) -> Path:
    """Return the folder of a fold's run inside the folder of its repeat."""
    return folder / f"fold-{fold}"


def read_repeat_scores(folder: Path) -> Scores:
    """Read scores.json of a repeat; ValueError where it is missing, malformed, or changed after it was written."""
    return read_result(folder / "scores.json", SCORES, folder)


def is_repeat(folder: Path | str) -> bool:
    """Tell whether a folder holds a repeat."""
    return fold_folder(Path(folder), 0).is_dir()


def open_run(folder: Path | str) -> "Run | Repeat":
    """Open a run, or a repeat with the runs of all folds.

    Args:
        folder: The folder of a run or of a repeat.

    Returns:
        The run or the repeat. Both have `model`, `embed`, `data` and `scores`.

    Raises:
        ValueError: The folder holds neither.
    """
    return Repeat.open(folder) if is_repeat(folder) else Run.open(folder)


@dataclass(frozen=True, eq=False, repr=False)
class Repeat:
    """A run for every fold of a protocol, used like one run.

    Its folder has fold-0, fold-1, ... with a run each, and scores.json after the test classes were measured. `model()`
    is the network of a single fold, or the concatenation of all folds.

    Args:
        folder: The folder of the repeat.
        runs: The runs of its folds, in order.
    """

    folder: Path
    runs: Sequence[Run]

    @staticmethod
    def open(folder: Path | str, dataset: Dataset | None = None) -> "Repeat":
        """Open a repeat.

        Args:
            folder: The folder of the repeat.
            dataset: The data set that its runs were trained on, where their configuration names none.

        Raises:
            ValueError: The folder is not that of a repeat.
        """
        folder = Path(folder)
        if not is_repeat(folder):
            raise ValueError(f"{folder} is not the folder of a repeat: it has no {fold_folder(folder, 0).name}")
        check_path(fold_folder(folder, 0), folder)
        first = Run.open(fold_folder(folder, 0), dataset)
        count = count_folds(first.config.data.protocol)
        for fold in range(1, count):
            check_path(fold_folder(folder, fold), folder)
        others = [Run.open(fold_folder(folder, fold), dataset) for fold in range(1, count)]
        return Repeat(folder, [first, *others])

    def __repr__(self) -> str:
        state = "tested" if self.tested else "trained" if self.finished else "not finished"
        folds = f"{len(self.runs)} fold{'s' * (len(self.runs) > 1)}"
        return f"Repeat('{self.folder}', {folds}, {state})"

    @property
    def finished(self) -> bool:
        """Whether every fold is trained; only then can the test classes be measured."""
        return all(run.finished for run in self.runs)

    @property
    def tested(self) -> bool:
        """Whether the test classes were measured for the runs as they are now."""
        path, runs = self.folder / "scores.json", [run.run_folder.scores for run in self.runs]
        if not path.is_file() or not self.finished:
            return False
        return path.stat().st_mtime_ns >= max(run.stat().st_mtime_ns for run in runs)

    @property
    def scores(self) -> Scores:
        """Scores on the test classes.

        Raises:
            ValueError: The test classes were not measured yet.
        """
        path = self.folder / "scores.json"
        if not path.is_file():
            raise ValueError(f"{self.folder} was not tested yet; call kinfold.experiments.Repeat.open(folder).test()")
        return read_repeat_scores(self.folder)

    @property
    def pipeline(self) -> Pipeline | None:
        """How images are prepared; None for features."""
        return self.runs[0].pipeline

    @property
    def background(self) -> str:
        """The color behind transparent pixels."""
        return self.runs[0].background

    @property
    def distance(self) -> Distance:
        """Distance of the embeddings. Concatenated embeddings are always compared by cosine."""
        return "cosine" if len(self.runs) > 1 else self.runs[0].distance

    def model(self) -> nn.Module:
        """Load the network; with several folds, one that concatenates their embeddings."""
        models = [run.model() for run in self.runs]
        return ConcatenatedEmbedder(models).eval() if len(models) > 1 else models[0]

    def weight_files(self) -> list[Path]:
        """List the files with the selected weights of all folds."""
        return [path for run in self.runs for path in run.weight_files()]

    def splits(self) -> dict[str, Dataset]:
        """Return "train", the classes that trained or validated in some fold, and "test", all other classes."""
        is_test = self._dataset.split == "test"
        splits = {"train": self._dataset.where(~is_test, relabel=True)}
        return {**splits, "test": self._dataset.where(is_test, relabel=True)} if np.any(is_test) else splits

    def list_visible_splits(self) -> dict[str, Dataset]:
        """Return the splits that may be used now: the test classes are held out until every fold is trained."""
        return {name: part for name, part in self.splits().items() if name != "test" or self.finished}

    def data(self, split: str = "test") -> Dataset:
        """Return one split; the test classes only after every fold is trained."""
        return select_split(self.splits(), split, self.folder, self.finished)

    def embed(self, things: Any, progress: Callable[[str, float], None] | None = None) -> Tensor:
        """Embed a data set, or anything else that `Run.embed` accepts.

        Args:
            things: What to embed.
            progress: Called with a stage and the fraction of it that is complete.

        Returns:
            (N, dim), in the order of `things`; with several folds their embeddings concatenated.
        """
        rows = [run.embed(things, progress) for run in self.runs]
        return concatenate_embeddings(rows) if len(rows) > 1 else rows[0]

    def test(self) -> Scores:
        """Measure the held-out test classes and write scores.json.

        Returns:
            "separated": mean over the folds' models. "concatenated": scores of their concatenated embeddings, where
            there are several folds. "start": the same before the first training step. "validation" and "train_space":
            means over the folds. Scores of runs that were selected on the test classes are copied and marked as
            inflated.

        Raises:
            ValueError: A fold is not finished, or its weights are not finite.
        """
        unfinished = [run.folder.name for run in self.runs if not run.finished]
        if unfinished:
            raise ValueError(
                f"the test classes of {self.folder} are held out until every fold is trained; "
                f"not finished: {', '.join(unfinished)}"
            )
        run_scores = [run.scores for run in self.runs]
        # older runs do not record whether they selected the start
        selected_start = [scores.get("selected_start", False) for scores in run_scores]
        starts = [scores.get("start", {}) for scores in run_scores]
        scores: Scores = {
            "folds": len(self.runs),
            "inflated": any(scores["inflated"] for scores in run_scores),
            "selected_start": all(selected_start),
            "start_folds": [fold for fold, selected in enumerate(selected_start) if selected],
            "validation": _compute_means([scores.get("validation", {}) for scores in run_scores]),
            "train_space": _compute_means([scores.get("train_space", {}) for scores in run_scores]),
            "start": {"validation": _compute_means([start.get("validation", {}) for start in starts])},
            "runs": self.compute_run_checksums(),
        }
        if scores["inflated"]:
            scores["separated"] = _compute_means([scores.get("test", {}) for scores in run_scores])
            scores["start"]["separated"] = _compute_means([start.get("test", {}) for start in starts])
        else:
            scores |= self._measure_test_classes(lambda run, dataset: run.embed(dataset))
            try:
                scores["start"] |= self._measure_test_classes(lambda run, dataset: run.embed_start(dataset))
            except (ValueError, OSError, ImportError) as error:  # such as weights that were moved
                scores["start_unknown"] = str(error)
        write_result(self.folder / "scores.json", nan_to_null(scores), self.folder)
        return scores

    def compute_run_checksums(self) -> list[str]:
        """Return the sha256 of the scores of every fold's run."""
        return [compute_sha256(read_bytes(run.run_folder.scores, self.folder)) for run in self.runs]

    def _measure_test_classes(self, embed: Callable[[Run, Dataset], Tensor]) -> Scores:
        """Metrics of the embeddings that `embed` returns for the run of each fold."""
        dataset, names = self.data("test"), self.runs[0].config.evaluation.metrics
        fold_embeddings = [embed(run, dataset) for run in self.runs]
        for run, embeddings in zip(self.runs, fold_embeddings, strict=True):
            if not embeddings.isfinite().all():
                raise ValueError(f"{run.folder} has no usable weights: {run.scores['ended']}")
        separated = [
            compute_metrics(embeddings, dataset, names, run.distance)
            for embeddings, run in zip(fold_embeddings, self.runs, strict=True)
        ]
        scores: Scores = {"separated": _compute_means(separated)}
        if len(fold_embeddings) > 1:
            scores["concatenated"] = compute_metrics(concatenate_embeddings(fold_embeddings), dataset, names, "cosine")
        return scores

    @cached_property
    def _dataset(self) -> Dataset:
        settings = replace(self.runs[0].config.data, test="open")
        dataset = self.runs[0].dataset
        return splits.load_dataset(settings) if dataset is None else splits.assign_splits(dataset, settings)


def _compute_means(fold_scores: Sequence[Scores]) -> dict[str, float | None]:
    """Mean of every metric over the folds; None where a fold has no number."""
    means: dict[str, float | None] = {}
    for name in fold_scores[0]:
        values = [scores.get(name) for scores in fold_scores]
        numbers = [value for value in values if value is not None and value == value]
        means[name] = sum(numbers) / len(values) if len(numbers) == len(values) else None
    return means
