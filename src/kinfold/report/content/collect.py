"""All that a report shows of a run or a bench, as one object of plain values; `kinfold.report.page` shows it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import kinfold
from kinfold.data import Dataset
from kinfold.report.content import embedding_spaces as spaces
from kinfold.report.content import result_tables as results
from kinfold.report.content.datasets import Library
from kinfold.report.content.diagnostics import diagnostics
from kinfold.report.content.inputs import Repetition, ReportInputs, Subject, find_inputs
from kinfold.report.content.json_values import defined
from kinfold.report.content.map_layout import has_tsne
from kinfold.report.content.pair_weights import pair_weights
from kinfold.report.content.path_redaction import shown_folder, without_places
from kinfold.report.content.thumbnails import Thumbnails, pictured
from kinfold.report.content.training_curves import training_curves

POINTS = 3_000


def collect_content(
    folder: Path | str,
    points: int = POINTS,
    *,
    dataset: Dataset | None = None,
    tell: Callable[[str, float], None] | None = None,
) -> dict[str, Any]:
    """What lies in the folder of a run, a repeat or a bench, or in a folder of runs, ready for JSON.

    points: on a map at most. dataset: what the runs learned from, where their configurations name none. tell: is told
    how far long work is (stage, share). Maps and all that takes long are kept in the folders of the runs.

    What cannot be shown is said in "missing", in plain sentences.
    """
    if points < 2:
        raise ValueError(f"a map needs at least 2 points, got {points}")
    found = find_inputs(folder)
    missing = _state(found)
    library = Library(dataset)
    training = training_curves(found, missing)
    looked = [
        spaces.look(subject, repetition, library, points, missing, tell) for subject, repetition in spaces.chosen(found)
    ]
    seen = [space for space in looked if space is not None]
    if seen and not has_tsne():
        missing.append('no maps: t-SNE is made by scikit-learn, which is not installed (pip install "kinfold[report]")')
    thumbnails = Thumbnails()
    spaces.want(seen, thumbnails)
    with _stage(tell, "pictures of the report"):
        sheets = thumbnails.draw(found.folder)
    missing += _of_pictures(seen, thumbnails)
    with _stage(tell, "spaces of the training classes"):
        measured = diagnostics(found, library, missing)
    with _stage(tell, "pair weights of the losses"):
        weights = pair_weights(found, library, missing)
    about = {
        "kinfold": kinfold.__version__,
        "folder": shown_folder(found.folder),
        "protocol": found.protocol,
        "data": found.data,
        "seeds": found.seeds,
    }
    whole = {
        "title": found.folder.resolve().name if found.bench is None else found.bench.suite.name,
        "kind": found.kind,
        "about": about,
        "inflated": results.is_inflated(found),
        "tables": results.tables(found),
        "training": training,
        "spaces": [spaces.content(space, thumbnails) for space in seen],
        "diagnostics": measured,
        "weights": weights,
        "thumbnails": sheets,
    }
    whole["missing"] = [*dict.fromkeys(missing)]
    made: dict[str, Any] = defined(whole)
    return made


@contextmanager
def _stage(tell: Callable[[str, float], None] | None, name: str) -> Iterator[None]:
    """Work that cannot say how far it is, told of when it begins and when it is done."""
    if tell is not None:
        tell(name, 0.0)
    yield
    if tell is not None:
        tell(name, 1.0)


def _state(found: ReportInputs) -> list[str]:
    """What the numbers cannot tell: what failed, is not finished, was not measured, or was chosen unfairly."""
    told = [without_places(why) for why in found.unopened]
    if found.bench is not None:
        told += [f"{name} failed: {without_places(why)}" for name, why in found.failures.items()]
        waiting = [
            subject.named(repetition)
            for subject in found.subjects
            for repetition in subject.repetitions
            if not repetition.complete
        ]
        every = sum(len(subject.repetitions) for subject in found.subjects)
        if waiting:
            some = f"{', '.join(waiting[:5])}{', ...' if len(waiting) > 5 else ''}"
            told.append(f"the bench is not complete: {len(waiting)} of {every} repeats have no result yet ({some})")
    else:
        told += [
            _unfinished(subject, repetition)
            for subject in found.subjects
            for repetition in subject.repetitions
            if not repetition.complete
        ]
    told += _of_validation(found)
    if max(len(subject.repetitions) for subject in found.subjects) < 2:
        told.append("one seed: there are no intervals, and methods cannot be told apart")
    if results.is_inflated(found):
        told.append("inflated: the steps were chosen by looking at the test classes, for every metric apart")
    for subject in found.subjects:
        for run in subject.runs:
            ended = run.scores["ended"] if run.finished else ""
            if run.finished and run.scores.get("selected_start"):
                named = f"{subject.method}, seed {run.config.seed}"
                fold = f", fold {run.config.data.fold}" if len(subject.runs) > len(subject.repetitions) else ""
                told.append(f"{named}{fold}: the start was selected, so its scores are those before training")
            if "not finite" in ended:
                told.append(f"{subject.method}, seed {run.config.seed}: training ended early: {ended}")
    return told


def _unfinished(subject: Subject, repetition: Repetition) -> str:
    begun = [run for run in repetition.runs if not run.finished]
    if not begun:
        return f"{subject.named(repetition)}: all folds are trained, but the test classes were not opened yet"
    steps = [event["step"] for event in begun[0].events]
    of = begun[0].config.training.steps
    reached = f"step {max(steps, default=0)}{'' if of is None else f' of {of}'} in its log"
    weights = "the best weights so far" if begun[0].run_folder.best.is_file() else "the newest weights"
    return f"{subject.named(repetition)} is not finished ({reached}): there are no results, and {weights} are shown"


def _of_validation(found: ReportInputs) -> list[str]:
    """Runs without validation classes keep their last weights."""
    runs = [(subject, run) for subject in found.subjects for run in subject.runs if run.finished]
    without = [(subject, run) for subject, run in runs if "validation" not in run.scores]
    without = [(subject, run) for subject, run in without if run.config.evaluation.selection == "last"]
    if not without:
        return []
    names = "" if len(without) == len(runs) else f" of {', '.join(dict.fromkeys(s.method for s, _ in without))}"
    return [f"no validation classes: the weights{names} are those of the last step"]


def _of_pictures(seen: list[spaces.Space], thumbnails: Thumbnails) -> list[str]:
    told = [
        f"{space.data}: its items are features, not pictures; labels are shown instead"
        for space in seen
        if not pictured(space.dataset)
    ]
    if thumbnails.refused:
        told.append(f"pictures: the {thumbnails.most:,} most wanted; other items are shown by their labels")
    if thumbnails.outside:
        told.append(f"{thumbnails.outside:,} pictures lie outside of the folder of their data set, and are not shown")
    if thumbnails.unreadable:
        told.append(f"{thumbnails.unreadable:,} pictures cannot be read any more")
    return told
