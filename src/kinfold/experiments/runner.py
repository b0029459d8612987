"""Run a bench: keep the workers busy, record how every run ended, and measure the held-out test classes last."""

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kinfold.experiments.bench_folder import BenchFolder, BenchRun, is_trial
from kinfold.experiments.schedule import (
    Schedule,
    build_trial_tables,
    is_searched,
    list_trial_runs,
    open_study,
    schedule_method,
)
from kinfold.experiments.suite import Suite
from kinfold.experiments.workers.processes import Processes, WorkerPool
from kinfold.experiments.workers.tasks import Task, TaskResult
from kinfold.training.checking import check
from kinfold.training.loop.signals import StopRequest

POLL_SECONDS = 0.5  # between two checks of progress
OTHER_MACHINE_SECONDS = 5.0  # between two checks for trials of another machine
ATTEMPTS = 3  # at a task whose process is killed, before it counts as failed


@dataclass
class BenchState:
    """How far a bench is.

    Attributes:
        total: Number of tasks: runs, and tests of repeats.
        completed: How many of them succeeded.
        reused: How many of the completed ones come from an earlier start.
        failed: Name of a task, or of a method -> its error.
        running: Name of a task -> fraction of it that is complete.
        seconds: Duration of every task of this start that succeeded.
        jobs: How many tasks run at a time.
    """

    total: int
    completed: int = 0
    reused: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    running: dict[str, float] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    jobs: int = 1

    @property
    def fraction_sum(self) -> float:
        """Completed, failed and running tasks, the latter by their fractions."""
        return self.completed + len(self.failed) + sum(self.running.values())

    @property
    def seconds_left(self) -> float | None:
        """Estimated seconds until the end; None before the first task is complete."""
        if not self.seconds:
            return None
        remaining = self.total - self.fraction_sum
        return max(0.0, remaining) * sum(self.seconds) / len(self.seconds) / max(1, min(self.jobs, remaining))


ProgressCallback = Callable[[BenchState, TaskResult | None], object]


class Interrupted(Exception):  # noqa: N818  (not an error: everything is saved)
    """The bench was interrupted by a signal. Everything is saved, and the next start continues it."""


def run_bench(
    suite: Suite,
    folder: Path | str,
    workers: Callable[[BenchFolder], WorkerPool] | None = None,
    *,
    storage: str | None = None,
    watch: ProgressCallback | None = None,
    jobs: int = 1,
) -> BenchState:
    """Train every run that is not finished yet, then measure the test classes of every complete repeat.

    A run that fails does not stop the others; the next start tries it again. A run whose process is killed by a signal
    is tried again at once, `ATTEMPTS` times in all. A trial of a search that is lost in this way does not count as
    failed: its method waits for the next start, so that all methods have the same number of trials.

    Args:
        suite: What is compared.
        folder: The folder of the bench. A bench in it continues.
        workers: Creates the workers that run the tasks; processes with one thread each unless given.
        storage: URL of the database for the search; a file in the folder unless given.
        watch: Called with the state, and with the result of a task that has just ended or None.
        jobs: How many tasks run at a time.

    Returns:
        The state at the end, with the errors of tasks that failed.

    Raises:
        ValueError: Data are missing, or finished runs have other settings than the suite.
        Interrupted: A signal interrupted the bench.

    Examples:
        `run_bench(read_suite("suite.toml"), "bench/birds", jobs=2)`
    """
    bench_folder, stop_request = BenchFolder(folder), StopRequest()
    check_data(suite)
    with bench_folder.lock():
        check_finished_runs(suite, bench_folder, storage)
        bench_folder.write_suite(suite.to_toml())
        scheduler = Scheduler(suite, bench_folder, storage, watch, jobs, stop_request)
        pool = Processes(jobs, 1, bench_folder.log) if workers is None else workers(bench_folder)
        try:
            # a flag, not an exception that could come between a task and the note that it was submitted
            with stop_request.listen():
                scheduler.train(pool)
                scheduler.test(pool)
        finally:
            pool.close()
        return scheduler.state


def check_methods(suite: Suite) -> None:
    """Raise ValueError for the first wrong name, option or value of a method."""
    for data in suite.datasets:
        for method in suite.methods:
            try:
                check(suite.build_config(data, method))
            except ValueError as error:
                raise ValueError(f"{method} on {data}: {error}") from None


def check_data(suite: Suite) -> None:
    """Raise ValueError where the file or folder of a data set does not exist."""
    for data in suite.datasets:
        for method in suite.methods:
            root = suite.build_config(data, method).data.root
            if root is not None and not Path(root).exists():
                raise ValueError(f"{data}: there is no {root}; say where it is with --root {data}=...")


def check_finished_runs(suite: Suite, bench_folder: BenchFolder, storage: str | None) -> None:
    """Raise ValueError where finished runs have other settings than the suite."""
    if not bench_folder.started:
        return
    if storage is None and (bench_folder.path / "records" / "search").exists() and not bench_folder.journal.is_file():
        raise ValueError(f"the search of {bench_folder.path} is in a database: give --storage as at its first start")
    for data in suite.datasets:
        for method in suite.methods:
            chosen: Mapping[str, Any] = {}
            if is_searched(suite, data, method):
                study = open_study(suite, bench_folder, data, method, storage)
                values = {trial.number: trial.values for trial, _ in study.history()}
                for number in range(suite.trials):
                    for run in list_trial_runs(suite, data, method, number):
                        # a trial that this study does not have belongs to another one
                        tables = build_trial_tables(suite, run, values[number]) if number in values else {}
                        bench_folder.is_finished(run.name, tables)
                if study.remaining or not study.completed:
                    continue  # the settings of its repeats are not decided yet
                chosen = study.best().values
            for seed in suite.seeds:
                for fold in range(suite.folds):
                    tables = suite.build_run_tables(data, method, seed, fold, chosen)
                    bench_folder.is_finished(BenchRun(data, method, seed, fold).name, tables)


class Scheduler:
    """Runs the schedules of all methods on all data sets, with as many tasks at a time as the workers accept.

    Args:
        suite: What is compared.
        bench_folder: The folder of the bench.
        storage: URL of the database for the search, or None.
        watch: Called when something changes, or None.
        jobs: How many tasks run at a time.
        stop_request: Says whether a signal asked for a stop.
    """

    def __init__(
        self,
        suite: Suite,
        bench_folder: BenchFolder,
        storage: str | None,
        watch: ProgressCallback | None,
        jobs: int,
        stop_request: StopRequest,
    ) -> None:
        self._suite, self._folder, self._watch, self._stop_request = suite, bench_folder, watch, stop_request
        pairs = [(data, method) for data in suite.datasets for method in suite.methods]
        self._schedules: list[Schedule] = [schedule_method(suite, bench_folder, *pair, storage) for pair in pairs]
        studies = [open_study(suite, bench_folder, *pair, storage) for pair in pairs if is_searched(suite, *pair)]
        trials = sum(study.remaining for study in studies)
        repeats = len(pairs) * len(suite.seeds)
        self.state = BenchState((trials + repeats) * suite.folds + repeats, jobs=jobs)
        self._queue: deque[Task] = deque()
        self._running: dict[str, Task] = {}
        self._ended: dict[str, bool] = {}  # name -> whether it succeeded
        self._losses = Counter[str]()  # of processes, by name of the task

    def train(self, workers: WorkerPool) -> None:
        """Run all searches and repeats."""
        # schedule -> when to ask it again, and the tasks that it waits for; None before its start
        waiting: dict[int, tuple[float, list[str] | None]] = dict.fromkeys(range(len(self._schedules)), (0.0, None))
        while waiting:
            for number, (not_before, names) in [*waiting.items()]:
                if not all(name in self._ended for name in names or ()) or (
                    not names and time.monotonic() < not_before
                ):
                    continue
                lost = [name for name in names or () if is_trial(name) and self._losses[name] >= ATTEMPTS]
                if lost:
                    del waiting[number]
                    self._give_up(number, self._describe_lost(lost[0]))
                    continue
                succeeded = None if names is None else [self._ended[name] for name in names]
                try:
                    tasks = self._schedules[number].send(succeeded)  # type: ignore[arg-type]  # None starts it
                except StopIteration:
                    del waiting[number]
                except ValueError as error:  # all trials of its search failed
                    del waiting[number]
                    self._give_up(number, str(error))
                else:
                    waiting[number] = self._enqueue_all(tasks)
            if waiting:
                self._work(workers)

    def test(self, workers: WorkerPool) -> None:
        """Measure the test classes, after every decision is made."""
        suite = self._suite
        for data in suite.datasets:
            for method in suite.methods:
                for seed in suite.seeds:
                    runs = [BenchRun(data, method, seed, fold) for fold in range(suite.folds)]
                    if all(self._ended.get(run.name) for run in runs):
                        records = {run.name: self._folder.read_record(run.name) for run in runs}
                        tables = {name: record["asked"] for name, record in records.items() if record}
                        self._enqueue(self._folder.create_test_task(runs[0], tables))
        while self._queue or self._running:
            self._work(workers)

    def stop(self, workers: WorkerPool) -> None:
        """Let running tasks save their state and stop."""
        workers.stop()
        while self._running:
            for result in workers.wait(POLL_SECONDS, self._set_progress):
                self._end(result)

    def _enqueue_all(self, tasks: Sequence[Task]) -> tuple[float, list[str]]:
        for task in tasks:
            self._enqueue(task)
        return time.monotonic() + OTHER_MACHINE_SECONDS, [task.name for task in tasks]

    def _enqueue(self, task: Task) -> None:
        if self._folder.is_finished(task.name, task.tables):
            self._ended[task.name] = True
            self.state.completed += 1
            self.state.reused += 1
            self._notify(None)
        else:
            self._queue.append(task)

    def _work(self, workers: WorkerPool) -> None:
        """Submit tasks while workers are free, and process results."""
        if self._stop_request.signal:
            self.stop(workers)
            raise Interrupted
        while self._queue and workers.free > 0:
            task = self._queue.popleft()
            if task.kind == "train" and self._folder.settings_changed(task):
                self._folder.set_aside(task)
            self._running[task.name] = task
            self.state.running[task.name] = 0.0
            workers.submit(task)
        for result in workers.wait(POLL_SECONDS, self._set_progress):
            self._end(result)
        self._notify(None)

    def _end(self, result: TaskResult) -> None:
        task = self._running.pop(result.name)
        self.state.running.pop(result.name, None)
        if result.stopped:
            self._queue.append(task)  # it continues, unless the bench itself is stopped
            return
        if result.lost:
            self._losses[result.name] += 1
            if self._losses[result.name] < ATTEMPTS:
                self._queue.append(task)
                self._notify(result)
                return
        self._folder.write_record(task, result)
        self._ended[result.name] = result.succeeded
        if result.succeeded:
            self.state.completed += 1
            self.state.seconds.append(result.seconds)
        else:
            self.state.failed[result.name] = result.error or ""
        self._notify(result)

    def _give_up(self, number: int, reason: str) -> None:
        data, method = divmod(number, len(self._suite.methods))
        name = f"{self._suite.datasets[data]}, {self._suite.methods[method]}"
        self.state.failed[name] = reason
        self._notify(TaskResult(name, 0.0, reason))

    def _describe_lost(self, name: str) -> str:
        return (
            f"{name} was lost {ATTEMPTS} times: {self.state.failed[name]}. Its method keeps this trial, so that all "
            "methods have the same number, and continues with it at the next start of the bench"
        )

    def _set_progress(self, name: str, fraction: float) -> None:
        self.state.running[name] = fraction

    def _notify(self, result: TaskResult | None) -> None:
        if self._watch is not None:
            self._watch(self.state, result)
