"""One repeat of a protocol: a run for every fold, and what they reach on the test classes, apart and together."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from kinfold.data import Dataset, Pipeline
from kinfold.data.folds import count_folds
from kinfold.files.documents import nan_to_null, read_result, write_result
from kinfold.files.paths import check_path
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
}


def fold_folder(folder: Path, fold: int) -> Path:
    """Where the run of a fold lies inside the folder of its repeat."""
    return folder / f"fold-{fold}"


def read_repeat_scores(folder: Path) -> Scores:
    """What scores.json of a repeat says; ValueError where it is missing, malformed, or not what was written."""
    return read_result(folder / "scores.json", SCORES, folder)


def is_repeat(folder: Path | str) -> bool:
    return fold_folder(Path(folder), 0).is_dir()


def open_run(folder: Path | str) -> "Run | Repeat":
    """What lies in a folder: a run, or the runs of all folds of a protocol."""
    return Repeat.open(folder) if is_repeat(folder) else Run.open(folder)


@dataclass(frozen=True, eq=False)
class Repeat:
    """The folder of a repeat: fold-0, fold-1, ... with a run each, and scores.json once the test classes were opened.

    It is used like a run: `model()` is the network of a single fold, or all of them side by side.
    """

    folder: Path
    runs: Sequence[Run]

    @staticmethod
    def open(folder: Path | str, dataset: Dataset | None = None) -> "Repeat":
        """A repeat that was made before; `dataset` where its runs learned from one that no configuration names."""
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

    @property
    def finished(self) -> bool:
        """Whether every fold is trained; the test classes may then be opened."""
        return all(run.finished for run in self.runs)

    @property
    def tested(self) -> bool:
        """Whether the test classes were opened for the runs as they are now."""
        path, runs = self.folder / "scores.json", [run.run_folder.scores for run in self.runs]
        if not path.is_file() or not self.finished:
            return False
        return path.stat().st_mtime_ns >= max(run.stat().st_mtime_ns for run in runs)

    @property
    def scores(self) -> Scores:
        """What scores.json says."""
        path = self.folder / "scores.json"
        if not path.is_file():
            raise ValueError(
                f"{self.folder} was not tested yet: kinfold.experiments.Repeat.open(folder).test() does it"
            )
        return read_repeat_scores(self.folder)

    @property
    def pipeline(self) -> Pipeline | None:
        return self.runs[0].pipeline

    @property
    def background(self) -> str:
        """The color that transparent pixels are drawn on."""
        return self.runs[0].background

    @property
    def distance(self) -> Distance:
        """Vectors side by side are compared by their cosine, whatever each of them was trained for."""
        return "cosine" if len(self.runs) > 1 else self.runs[0].distance

    def model(self) -> nn.Module:
        models = [run.model() for run in self.runs]
        return ConcatenatedEmbedder(models).eval() if len(models) > 1 else models[0]

    def weight_files(self) -> list[Path]:
        """Where the selected weights of all folds lie."""
        return [path for run in self.runs for path in run.weight_files()]

    def splits(self) -> dict[str, Dataset]:
        """train: every class that trained or validated in some fold. test: the others."""
        tested = self._whole.split == "test"
        found = {"train": self._whole.where(~tested, relabel=True)}
        return {**found, "test": self._whole.where(tested, relabel=True)} if np.any(tested) else found

    def list_visible_splits(self) -> dict[str, Dataset]:
        """The splits that may be looked at: test classes stay sealed until every fold is trained."""
        return {name: part for name, part in self.splits().items() if name != "test" or self.finished}

    def data(self, split: str = "test") -> Dataset:
        return select_split(self.splits(), split, self.folder, self.finished)

    def embed(self, things: Any, progress: Callable[[str, float], None] | None = None) -> Tensor:
        """(N, dim) in the order of the data set, or of whatever else `Run.embed` takes."""
        rows = [run.embed(things, progress) for run in self.runs]
        return concatenate_embeddings(rows) if len(rows) > 1 else rows[0]

    def test(self) -> Scores:
        """Open the test classes, measure every fold's model and all of them side by side, and write scores.json.

        separated: the mean over the folds. concatenated: of their vectors side by side; with one fold there is nothing
        to put together. start: the same before the first step, for the gain of training. Refused while a fold is still
        training. What selection on the test classes gave is taken over
        as it is, and marked as inflated.
        """
        waiting = [run.folder.name for run in self.runs if not run.finished]
        if waiting:
            raise ValueError(
                f"the test classes of {self.folder} stay sealed until every fold is trained; "
                f"not finished: {', '.join(waiting)}"
            )
        each = [run.scores for run in self.runs]
        scores: Scores = {
            "folds": len(self.runs),
            "inflated": any(found["inflated"] for found in each),
            # runs that were made before this was written down do not say
            "selected_start": all(found.get("selected_start", False) for found in each),
            "start_folds": [fold for fold, found in enumerate(each) if found.get("selected_start", False)],
            "validation": _mean([found.get("validation", {}) for found in each]),
            "train_space": _mean([found.get("train_space", {}) for found in each]),
        }
        starts = [found.get("start", {}) for found in each]
        scores["start"] = {"validation": _mean([start.get("validation", {}) for start in starts])}
        if scores["inflated"]:
            scores["separated"] = _mean([found.get("test", {}) for found in each])
            scores["start"]["separated"] = _mean([start.get("test", {}) for start in starts])
        else:
            scores |= self._tested(lambda run, tested: run.embed(tested))
            try:
                scores["start"] |= self._tested(lambda run, tested: run.embed_start(tested))
            except (ValueError, OSError, ImportError) as wrong:  # such as weights that lie elsewhere by now
                scores["start_unknown"] = str(wrong)
        write_result(self.folder / "scores.json", nan_to_null(scores), self.folder)
        return scores

    def _tested(self, embed: Callable[[Run, Dataset], Tensor]) -> Scores:
        """Metrics on the test classes of what `embed` gives for the run of each fold."""
        tested, names = self.data("test"), self.runs[0].config.evaluation.metrics
        rows = [embed(run, tested) for run in self.runs]
        for run, found in zip(self.runs, rows, strict=True):
            if not found.isfinite().all():
                raise ValueError(f"{run.folder} has no usable weights: {run.scores['ended']}")
        apart = [
            compute_metrics(found, tested, names, run.distance) for found, run in zip(rows, self.runs, strict=True)
        ]
        together = (
            {"concatenated": compute_metrics(concatenate_embeddings(rows), tested, names, "cosine")}
            if len(rows) > 1
            else {}
        )
        return {"separated": _mean(apart), **together}

    @cached_property
    def _whole(self) -> Dataset:
        settings = replace(self.runs[0].config.data, test="open")
        given = self.runs[0].dataset
        return splits.load_dataset(settings) if given is None else splits.assign_splits(given, settings)


def _mean(scores: Sequence[Scores]) -> dict[str, float | None]:
    """Metric by metric; one that is missing in any fold has no mean."""
    found: dict[str, float | None] = {}
    for name in scores[0]:
        values = [each.get(name) for each in scores]
        known = [value for value in values if value is not None and value == value]
        found[name] = sum(known) / len(values) if len(known) == len(values) else None
    return found
