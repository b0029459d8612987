"""In which order the cells of one method on one data set are made: its search, then its repeats."""

import hashlib
import json
from collections.abc import Generator, Mapping, Sequence
from typing import Any

from kinfold.experiments.bench_folder import BenchFolder, BenchRun
from kinfold.experiments.search import Study
from kinfold.experiments.suite import SEARCH_SEED, Suite
from kinfold.experiments.workers.tasks import Task
from kinfold.training.run_folder import RunFolder

# what can be made now -> whether each of them is done
Schedule = Generator[list[Task], Sequence[bool], None]


def schedule_method(suite: Suite, place: BenchFolder, data: str, method: str, storage: str | None) -> Schedule:
    """Yields tasks that do not depend on each other, is sent whether each was done, and goes on from there.

    The settings of the repeats are those of the best trial. An empty list means: wait for another machine.
    """
    chosen: dict[str, Any] = {}
    if is_searched(suite, data, method):
        study = yield from _search(suite, place, data, method, storage)
        chosen = study.best().values
    yield [
        place.task(BenchRun(data, method, seed, fold), suite.build_run_tables(data, method, seed, fold, chosen))
        for seed in suite.seeds
        for fold in range(suite.folds)
    ]


def is_searched(suite: Suite, data: str, method: str) -> bool:
    """Whether there is anything to search for this method."""
    untrained = suite.tables(data, method).get("training", {}).get("steps") == 0
    return suite.trials > 0 and bool(suite.space(data, method)) and not untrained


def open_study(suite: Suite, place: BenchFolder, data: str, method: str, storage: str | None) -> Study:
    tables = suite.tables(data, method)
    about = {key: value for key, value in tables.get("data", {}).items() if key != "root"}  # machines differ in it
    # other settings are another search, whose trials are others though they may be drawn alike
    asked = json.dumps([suite.protocol, suite.metric, {**tables, "data": about}], sort_keys=True)
    digest = hashlib.sha256(asked.encode()).hexdigest()[:8]
    return Study(
        f"{suite.name}/{data}/{method}/{digest}",
        suite.space(data, method),
        suite.trials,
        suite.metric,
        place.journal if storage is None else storage,
        worker=place.identity,
    )


def list_trial_runs(suite: Suite, data: str, method: str, number: int) -> list[BenchRun]:
    return [BenchRun(data, method, SEARCH_SEED, fold, number) for fold in range(suite.folds)]


def build_trial_tables(suite: Suite, cell: BenchRun, values: Mapping[str, Any]) -> dict[str, Any]:
    """What is asked of a cell of a trial with these values."""
    # nobody looks at the space of a trial
    return suite.build_run_tables(
        cell.data, cell.method, cell.seed, cell.fold, {**values, "evaluation.diagnose": "never"}
    )


def _search(
    suite: Suite, place: BenchFolder, data: str, method: str, storage: str | None
) -> Generator[list[Task], Sequence[bool], Study]:
    looking = open_study(suite, place, data, method, storage)
    while looking.left:
        trial = looking.next()
        if trial is None:
            yield []
            continue
        cells = list_trial_runs(suite, data, method, trial.number)
        done = yield [place.task(cell, build_trial_tables(suite, cell, trial.values)) for cell in cells]
        looking.tell(trial, _reached(place, cells, suite.metric) if all(done) else None)
    _check_values(suite, place, data, method, looking)
    return looking


def _check_values(suite: Suite, place: BenchFolder, data: str, method: str, looking: Study) -> None:
    """ValueError where the journal has another value for a trial than its runs, whose scores have checksums."""
    for trial, value in looking.history():
        cells = list_trial_runs(suite, data, method, trial.number)
        here = all(RunFolder(place.inside(cell.name)).finished for cell in cells)  # or on another machine
        if value is None or not here:
            continue
        reached = _reached(place, cells, suite.metric)
        if value != reached:
            raise ValueError(
                f"the search of {method} on {data} is damaged: {place.journal.name} says that trial {trial.number} "
                f"reached {value}, but the scores of its runs say {reached}. Restore it, or begin the bench anew in "
                "another folder"
            )


def _reached(place: BenchFolder, cells: Sequence[BenchRun], metric: str) -> float | None:
    """The mean over the folds; a trial without a number in some fold is no setting to use, and has none."""
    values = [_validation(place, cell, metric) for cell in cells]
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if len(known) == len(cells) else None


def _validation(place: BenchFolder, cell: BenchRun, metric: str) -> float | None:
    scores = RunFolder(place.inside(cell.name)).read_scores()
    value: float | None = scores.get("validation", {}).get(metric)
    return value
