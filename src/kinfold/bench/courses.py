"""In which order the cells of one method on one data set are made: its search, then its repeats."""

import hashlib
import json
from collections.abc import Generator, Mapping, Sequence
from typing import Any

from kinfold.bench.folder import BenchFolder, Cell
from kinfold.bench.suite import SEARCH_SEED, Suite
from kinfold.bench.tasks import Task
from kinfold.protocols.search import Study
from kinfold.training.folder import RunFolder

# what can be made now -> whether each of them is done
Course = Generator[list[Task], Sequence[bool], None]


def course(suite: Suite, place: BenchFolder, data: str, method: str, storage: str | None) -> Course:
    """Yields tasks that do not depend on each other, is sent whether each was done, and goes on from there.

    The settings of the repeats are those of the best trial. An empty list means: wait for another machine.
    """
    chosen: dict[str, Any] = {}
    if searched(suite, data, method):
        study = yield from _search(suite, place, data, method, storage)
        chosen = study.best().values
    yield [
        place.task(Cell(data, method, seed, fold), suite.cell(data, method, seed, fold, chosen))
        for seed in suite.seeds
        for fold in range(suite.folds)
    ]


def searched(suite: Suite, data: str, method: str) -> bool:
    """Whether there is anything to search for this method."""
    untrained = suite.tables(data, method).get("training", {}).get("steps") == 0
    return suite.trials > 0 and bool(suite.space(data, method)) and not untrained


def study(suite: Suite, place: BenchFolder, data: str, method: str, storage: str | None) -> Study:
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


def trial_cells(suite: Suite, data: str, method: str, number: int) -> list[Cell]:
    return [Cell(data, method, SEARCH_SEED, fold, number) for fold in range(suite.folds)]


def trial_tables(suite: Suite, cell: Cell, values: Mapping[str, Any]) -> dict[str, Any]:
    """What is asked of a cell of a trial with these values."""
    # nobody looks at the space of a trial
    return suite.cell(cell.data, cell.method, cell.seed, cell.fold, {**values, "evaluation.diagnose": "never"})


def _search(
    suite: Suite, place: BenchFolder, data: str, method: str, storage: str | None
) -> Generator[list[Task], Sequence[bool], Study]:
    looking = study(suite, place, data, method, storage)
    while looking.left:
        trial = looking.next()
        if trial is None:
            yield []
            continue
        cells = trial_cells(suite, data, method, trial.number)
        done = yield [place.task(cell, trial_tables(suite, cell, trial.values)) for cell in cells]
        reached = [_validation(place, cell, suite.metric) for cell in cells] if all(done) else []
        known = [value for value in reached if value is not None]
        # a trial without a number in some fold is no setting to use
        looking.tell(trial, sum(known) / len(known) if len(known) == len(cells) else None)
    return looking


def _validation(place: BenchFolder, cell: Cell, metric: str) -> float | None:
    scores = json.loads(RunFolder(place.path / cell.name).scores.read_text())
    value: float | None = scores.get("validation", {}).get(metric)
    return value
