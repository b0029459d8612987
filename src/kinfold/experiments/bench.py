"""Run a bench: keep the workers busy, write down how every cell ended, and open the test classes last."""

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

POLL = 0.5  # seconds between two looks at progress
ELSEWHERE = 5.0  # seconds between two looks at the trials of another machine
ATTEMPTS = 3  # at a task whose process is ended from outside, before it counts as failed


@dataclass
class State:
    """What is told to whoever watches: counts of tasks, shares of those being made, seconds that are left."""

    total: int
    done: int = 0
    kept: int = 0  # of the done ones, those of an earlier start
    failed: dict[str, str] = field(default_factory=dict)
    running: dict[str, float] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    jobs: int = 1

    @property
    def left(self) -> float | None:
        """Seconds until the end, by the tasks so far; None before the first is done."""
        if not self.seconds:
            return None
        remaining = self.total - self.done - len(self.failed) - sum(self.running.values())
        return max(0.0, remaining) * sum(self.seconds) / len(self.seconds) / max(1, min(self.jobs, remaining))


Watch = Callable[[State, TaskResult | None], object]


class Interrupted(Exception):  # noqa: N818  (everything is saved)
    """The bench was asked to stop, and can go on later."""


def run_bench(
    suite: Suite,
    folder: Path | str,
    workers: Callable[[BenchFolder], WorkerPool] | None = None,
    *,
    storage: str | None = None,
    watch: Watch | None = None,
    jobs: int = 1,
) -> State:
    """Make every cell that is not done yet; then open the test classes of every repeat that is complete.

    A cell that fails does not stop the others; it is tried again when the bench is started again. One whose process is
    ended by a signal is tried again at once, ATTEMPTS times in all. A trial of a search that is lost in this way is no
    failed trial: its method waits for the next start, so that all methods are searched alike.

    workers: who makes the cells; processes with one thread each, `jobs` at a time, unless given. storage: the data base
    of the search.
    """
    place, asked = BenchFolder(folder), StopRequest()
    check_data(suite)
    with place.lock():
        check_finished(suite, place, storage)
        place.begin(suite.to_toml())
        scheduler = Scheduler(suite, place, storage, watch, jobs, asked)
        made = Processes(jobs, 1, place.log) if workers is None else workers(place)
        try:
            # a flag, not an exception that could come between a task and the note that it was given out
            with asked.listen():
                scheduler.train(made)
                scheduler.test(made)
        finally:
            made.close()
        return scheduler.state


def check_names(suite: Suite) -> None:
    """ValueError for the first name, option or value of a method that is wrong, before anything is begun."""
    for data in suite.sources:
        for method in suite.methods:
            try:
                check(suite.configuration(data, method))
            except ValueError as wrong:
                raise ValueError(f"{method} on {data}: {wrong}") from None


def check_data(suite: Suite) -> None:
    """ValueError where a file or folder of a data set is not there, before anything is begun."""
    for data in suite.sources:
        for method in suite.methods:
            root = suite.configuration(data, method).data.root
            if root is not None and not Path(root).exists():
                raise ValueError(f"{data}: there is no {root}; say where it is with --root {data}=...")


def check_finished(suite: Suite, place: BenchFolder, storage: str | None) -> None:
    """ValueError where finished cells were made with other settings, before anything is begun."""
    if not place.begun:
        return
    if storage is None and (place.path / "records" / "search").exists() and not place.journal.is_file():
        raise ValueError(f"the search of {place.path} lies in a data base: give --storage as when it was begun")
    for data in suite.sources:
        for method in suite.methods:
            chosen: Mapping[str, Any] = {}
            if is_searched(suite, data, method):
                looking = open_study(suite, place, data, method, storage)
                tried = {trial.number: trial.values for trial, _ in looking.history()}
                for number in range(suite.trials):
                    for cell in list_trial_runs(suite, data, method, number):
                        # a trial that this search does not have yet was another search's
                        place.done(cell.name, build_trial_tables(suite, cell, tried[number]) if number in tried else {})
                if looking.left or not looking.successful:
                    continue  # the settings of its repeats are not known yet
                chosen = looking.best().values
            for seed in suite.seeds:
                for fold in range(suite.folds):
                    place.done(
                        BenchRun(data, method, seed, fold).name,
                        suite.build_run_tables(data, method, seed, fold, chosen),
                    )


class Scheduler:
    """Follows the course of every method on every data set, with as many tasks at a time as the workers take."""

    def __init__(
        self,
        suite: Suite,
        place: BenchFolder,
        storage: str | None,
        watch: Watch | None,
        jobs: int,
        asked: StopRequest,
    ) -> None:
        self._suite, self._place, self._watch, self._asked = suite, place, watch, asked
        pairs = [(data, method) for data in suite.sources for method in suite.methods]
        self._courses: list[Schedule] = [schedule_method(suite, place, data, method, storage) for data, method in pairs]
        searches = [open_study(suite, place, *pair, storage) for pair in pairs if is_searched(suite, *pair)]
        trials = sum(search.left for search in searches)
        repeats = len(pairs) * len(suite.seeds)
        self.state = State((trials + repeats) * suite.folds + repeats, jobs=jobs)
        self._queue: deque[Task] = deque()
        self._tasks: dict[str, Task] = {}  # being made
        self._ended: dict[str, bool] = {}  # name -> done
        self._attempts = Counter[str]()  # at tasks whose processes were lost

    def train(self, workers: WorkerPool) -> None:
        waiting: dict[int, tuple[float, list[str] | None]] = dict.fromkeys(range(len(self._courses)), (0.0, None))
        while waiting:
            for number, (since, names) in [*waiting.items()]:
                if not all(name in self._ended for name in names or ()) or (not names and time.monotonic() < since):
                    continue
                lost = [name for name in names or () if is_trial(name) and self._attempts[name] >= ATTEMPTS]
                if lost:
                    del waiting[number]
                    self._give_up(number, self._describe_lost(lost[0]))
                    continue
                done = None if names is None else [self._ended[name] for name in names]
                try:
                    tasks = self._courses[number].send(done)  # type: ignore[arg-type]  # None begins it
                except StopIteration:
                    del waiting[number]
                except ValueError as wrong:  # no trial of its search was any good
                    del waiting[number]
                    self._give_up(number, str(wrong))
                else:
                    waiting[number] = self._begun(tasks)
            if waiting:
                self._work(workers)

    def test(self, workers: WorkerPool) -> None:
        """Every decision is made: open the test classes."""
        suite = self._suite
        for data in suite.sources:
            for method in suite.methods:
                for seed in suite.seeds:
                    cells = [BenchRun(data, method, seed, fold) for fold in range(suite.folds)]
                    if all(self._ended.get(cell.name) for cell in cells):
                        asked = {cell.name: self._place.record(cell.name) for cell in cells}
                        self._enqueue(self._place.test_task(cells[0], {n: r["asked"] for n, r in asked.items() if r}))
        while self._queue or self._tasks:
            self._work(workers)

    def stop(self, workers: WorkerPool) -> None:
        """Have what is being made saved, so that it goes on where it was."""
        workers.stop()
        while self._tasks:
            for outcome in workers.wait(POLL, self._progress):
                self._end(outcome)

    def _begun(self, tasks: Sequence[Task]) -> tuple[float, list[str]]:
        for task in tasks:
            self._enqueue(task)
        return time.monotonic() + ELSEWHERE, [task.name for task in tasks]

    def _enqueue(self, task: Task) -> None:
        if self._place.done(task.name, task.tables):
            self._ended[task.name] = True
            self.state.done += 1
            self.state.kept += 1
            self._tell(None)
        else:
            self._queue.append(task)

    def _work(self, workers: WorkerPool) -> None:
        """Give out what can be given out, and take in what is ready."""
        if self._asked.signal:
            self.stop(workers)
            raise Interrupted
        while self._queue and workers.free > 0:
            task = self._queue.popleft()
            if task.kind == "train" and self._place.mended(task):
                self._place.set_aside(task)
            self._tasks[task.name] = task
            self.state.running[task.name] = 0.0
            workers.submit(task)
        for outcome in workers.wait(POLL, self._progress):
            self._end(outcome)
        self._tell(None)

    def _end(self, outcome: TaskResult) -> None:
        task = self._tasks.pop(outcome.name)
        self.state.running.pop(outcome.name, None)
        if outcome.stopped:
            self._queue.append(task)  # whoever stopped it: as long as nobody stops the bench, it goes on
            return
        if outcome.lost:
            self._attempts[outcome.name] += 1
            if self._attempts[outcome.name] < ATTEMPTS:
                self._queue.append(task)
                self._tell(outcome)
                return
        self._place.write(task, outcome)
        self._ended[outcome.name] = outcome.done
        if outcome.done:
            self.state.done += 1
            self.state.seconds.append(outcome.seconds)
        else:
            self.state.failed[outcome.name] = outcome.error or ""
        self._tell(outcome)

    def _give_up(self, number: int, why: str) -> None:
        data, method = divmod(number, len(self._suite.methods))
        name = f"{self._suite.sources[data]}, {self._suite.methods[method]}"
        self.state.failed[name] = why
        self._tell(TaskResult(name, 0.0, why))

    def _describe_lost(self, name: str) -> str:
        return (
            f"{name} was lost {ATTEMPTS} times: {self.state.failed[name]}. Its method keeps this trial, so that all "
            "methods have as many, and goes on with it when the bench is started again"
        )

    def _progress(self, name: str, share: float) -> None:
        self.state.running[name] = share

    def _tell(self, outcome: TaskResult | None) -> None:
        if self._watch is not None:
            self._watch(self.state, outcome)
