"""Schedule of one method on one data set: the runs of its search, then those of its repeats."""

import hashlib
import json
from collections.abc import Generator, Mapping, Sequence
from typing import Any

from kinfold.experiments.bench_folder import BenchFolder, BenchRun
from kinfold.experiments.search.study import Study
from kinfold.experiments.suite import SEARCH_SEED, Suite
from kinfold.experiments.workers.tasks import Task
from kinfold.training.config.parsing import to_tables
from kinfold.training.run_folder import RunFolder

# yields tasks that can run now; is sent whether each of them succeeded
Schedule = Generator[list[Task], Sequence[bool], None]


def schedule_method(suite: Suite, bench_folder: BenchFolder, data: str, method: str, storage: str | None) -> Schedule:
    """Yield lists of independent tasks, and continue with whether each of them succeeded.

    The repeats use the settings of the best trial. An empty list means: wait for another machine.
    """
    chosen: dict[str, Any] = {}
    if is_searched(suite, data, method):
        study = yield from _schedule_search(suite, bench_folder, data, method, storage)
        chosen = study.best().values
    yield [
        bench_folder.create_task(
            BenchRun(data, method, seed, fold), suite.build_run_tables(data, method, seed, fold, chosen)
        )
        for seed in suite.seeds
        for fold in range(suite.folds)
    ]


def is_searched(suite: Suite, data: str, method: str) -> bool:
    """Tell whether this method has anything to search."""
    untrained = suite.tables(data, method).get("training", {}).get("steps") == 0
    return suite.trials > 0 and bool(suite.search_space(data, method)) and not untrained


def list_planned_runs(suite: Suite) -> list[dict[str, Any]]:
    """List every method on every data set with its number of trials and runs, and its configuration."""
    planned = []
    for data in suite.datasets:
        for method in suite.methods:
            trials = suite.trials if is_searched(suite, data, method) else 0
            runs = (trials + len(suite.seeds)) * suite.folds
            config = to_tables(suite.build_config(data, method))
            planned.append({"data": data, "method": method, "trials": trials, "runs": runs, "configuration": config})
    return planned


def open_study(suite: Suite, bench_folder: BenchFolder, data: str, method: str, storage: str | None) -> Study:
    """Open the search of a method; one with other settings is another study."""
    tables = suite.tables(data, method)
    data_table = {key: value for key, value in tables.get("data", {}).items() if key != "root"}  # machines differ in it
    lengths = [] if suite.trial_steps is None else [suite.trial_steps]
    settings = json.dumps([suite.protocol, suite.metric, {**tables, "data": data_table}, *lengths], sort_keys=True)
    digest = hashlib.sha256(settings.encode()).hexdigest()[:8]
    return Study(
        f"{suite.name}/{data}/{method}/{digest}",
        suite.search_space(data, method),
        suite.trials,
        suite.metric,
        bench_folder.journal if storage is None else storage,
        worker=bench_folder.identity,
    )


def list_trial_runs(suite: Suite, data: str, method: str, number: int) -> list[BenchRun]:
    """List the runs of a trial, one for each fold."""
    return [BenchRun(data, method, SEARCH_SEED, fold, number) for fold in range(suite.folds)]


def build_trial_tables(suite: Suite, run: BenchRun, values: Mapping[str, Any]) -> dict[str, Any]:
    """Build the recipe of a run of a trial with these values."""
    # nobody looks at the embedding space of a trial
    changes = {**values, "evaluation.diagnose": "never"}
    if suite.trial_steps is not None:
        changes["training.steps"] = suite.trial_steps
    return suite.build_run_tables(run.data, run.method, run.seed, run.fold, changes)


def _schedule_search(
    suite: Suite, bench_folder: BenchFolder, data: str, method: str, storage: str | None
) -> Generator[list[Task], Sequence[bool], Study]:
    study = open_study(suite, bench_folder, data, method, storage)
    while study.remaining:
        trial = study.ask()
        if trial is None:
            yield []
            continue
        runs = list_trial_runs(suite, data, method, trial.number)
        succeeded = yield [bench_folder.create_task(run, build_trial_tables(suite, run, trial.values)) for run in runs]
        study.tell(trial, _compute_trial_value(bench_folder, runs, suite.metric) if all(succeeded) else None)
    _check_journal(suite, bench_folder, data, method, study)
    return study


def _check_journal(suite: Suite, bench_folder: BenchFolder, data: str, method: str, study: Study) -> None:
    """Compare the values in the journal with the scores of the runs, which have checksums."""
    for trial, value in study.history():
        runs = list_trial_runs(suite, data, method, trial.number)
        local = all(RunFolder(bench_folder.resolve_path(run.name)).finished for run in runs)  # or on another machine
        if value is None or not local:
            continue
        computed = _compute_trial_value(bench_folder, runs, suite.metric)
        if value != computed:
            raise ValueError(
                f"the search of {method} on {data} is damaged: {bench_folder.journal.name} says that trial "
                f"{trial.number} reached {value}, but the scores of its runs say {computed}. Restore it, or start the "
                "bench again in another folder"
            )


def _compute_trial_value(bench_folder: BenchFolder, runs: Sequence[BenchRun], metric: str) -> float | None:
    """Mean of a metric over the folds; None where a fold has no number, so that its settings are not used."""
    values = [_read_validation_score(bench_folder, run, metric) for run in runs]
    numbers = [value for value in values if value is not None]
    return sum(numbers) / len(numbers) if len(numbers) == len(runs) else None


def _read_validation_score(bench_folder: BenchFolder, run: BenchRun, metric: str) -> float | None:
    scores = RunFolder(bench_folder.resolve_path(run.name)).read_scores()
    value: float | None = scores.get("validation", {}).get(metric)
    return value
