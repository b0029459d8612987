"""Run what was planned for a table: trainings as a bench, steps by the clock, toys by their own function."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any

import torch

from kinfold.data import Batch, Dataset, load
from kinfold.distributed import World
from kinfold.experiments.bench import Watch, run_bench
from kinfold.experiments.bench_folder import BenchFolder
from kinfold.experiments.results import Bench, repeat
from kinfold.experiments.workers.processes import WorkerPool
from kinfold.papers import toy
from kinfold.papers.figure_data import collect_figure_data
from kinfold.papers.plan import Plan
from kinfold.papers.published import PublishedRow
from kinfold.papers.reading import COLUMN_GROUPS, TOY, measured
from kinfold.training.builder import RunBuilder
from kinfold.training.config.parsing import configure
from kinfold.training.config.settings import RunConfig
from kinfold.training.loop.trainer import Trainer

SECONDS = "seconds per step"
ROUNDS, WARM = 5, 1  # timed steps of every row, after this many that are not
Values = dict[str, dict[str, dict[int, float]]]  # row -> column -> seed -> value


@dataclass(frozen=True)
class SearchResult:
    """What a search came to: trials that it was given, those that gave a value, and the values of the best of them."""

    trials: int
    completed: int
    values: dict[str, Any]


@dataclass(frozen=True)
class Reproduction:
    """Ours on one data set. columns: those of the table that were measured or published, in its order. files: what was
    written beside the numbers. searches: row -> what its search found, for rows that were searched."""

    plan: Plan
    data: str
    columns: list[str]
    ours: Values
    failed: dict[str, str] = field(default_factory=dict)
    inflated: bool = False
    notes: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    searches: dict[str, SearchResult] = field(default_factory=dict)
    untrained: dict[str, str] = field(default_factory=dict)  # row -> why it is compared with none


def reproduce(
    plan: Plan,
    folder: Path,
    workers: Callable[[BenchFolder], WorkerPool],
    *,
    watch: Watch | None = None,
    jobs: int = 1,
    threads: int = 1,
) -> Iterator[Reproduction]:
    """One data set after the other, each in a folder of its own. Refused as long as anything is missing."""
    plan.require()
    if plan.table.kind == TOY:
        yield _toys(plan)
        return
    for data, rows in plan.settings.items():
        # what is wrong with the data is said once, before anything is begun
        settings = configure(next(iter(rows.values()))).data
        dataset = load(settings.name, settings.root, **settings.options)
        if plan.table.kind == "runtime":
            yield _timed(plan, data, dataset, threads)
        else:
            yield _trained(plan, data, folder / data, workers, watch, jobs)


def _trained(
    plan: Plan,
    data: str,
    folder: Path,
    workers: Callable[[BenchFolder], WorkerPool],
    watch: Watch | None,
    jobs: int,
) -> Reproduction:
    run_bench(plan.suite(data), folder, workers, watch=watch, jobs=jobs)
    bench = Bench.open(folder)
    bench.write()
    known = bench.metrics(data)
    if plan.table.kind == "space":
        columns = known
    else:
        columns = [name for name in plan.table.metrics if measured(name) in known or _published(plan, data, name)]
    ours: Values = {row.name: {} for row in plan.rows}
    for column in columns:
        result = "concatenated" if column.endswith(COLUMN_GROUPS[1]) else "separated"
        for name, values in bench.values(data, result, measured(column) or column).items():
            ours[name][column] = values
    files: list[str] = []
    if plan.table.kind == "space":
        for row in plan.rows:
            if any(ours[row.name].values()):
                path = folder / f"curves-{row.name}.npz"
                made = repeat(bench, data, row.name, plan.seeds[0])
                areas = collect_figure_data(made, path, plane="t-sne" in plan.table.metrics)
                for name, value in areas.items():
                    ours[row.name].setdefault(name, {plan.seeds[0]: value})
                files.append(str(path))
        columns = [*dict.fromkeys([*columns, "roc-auc", "pr-auc"])]
    searches = {
        method: SearchResult(budget.trials, budget.completed, budget.chosen)
        for (_, method), budget in bench.searches.items()
    }
    return Reproduction(
        plan,
        data,
        columns,
        ours,
        bench.failures,
        bench.inflated,
        files=tuple(files),
        searches=searches,
        untrained=bench.untrained(data),
    )


def _timed(plan: Plan, data: str, dataset: Dataset, threads: int) -> Reproduction:
    """Rows at the same place of the axis take turns, so that whatever else the machine does falls on all of them; the
    shortest of ROUNDS steps is what the work costs."""
    ours: Values = {}
    places = dict.fromkeys(row.x for row in plan.rows)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for place in places:
            rows = [row for row in plan.rows if row.x == place]
            settings = [configure(plan.settings[data][row.name]) for row in rows]
            for row, seconds in zip(rows, _seconds(settings, dataset), strict=True):
                ours[row.name] = {SECONDS: {plan.seeds[0]: seconds}}
    finally:
        torch.set_num_threads(before)
    note = f"the shortest of {ROUNDS} steps, rows taking turns; {threads} threads, batches read beforehand"
    return Reproduction(plan, data, [SECONDS], ours, notes=(note,))


def _seconds(settings: list[RunConfig], dataset: Dataset) -> list[float]:
    with ExitStack() as held:
        held.enter_context(torch.random.fork_rng(devices=[]))
        trainers = [RunBuilder(given, dataset, World.current()).build_trainer(None, []) for given in settings]
        batches = [cycle(_batches(trainer, ROUNDS + WARM)) for trainer in trainers]
        taken: list[list[float]] = [[] for _ in trainers]
        for number in range(ROUNDS + WARM):
            for trainer, read, times in zip(trainers, batches, taken, strict=True):
                start = time.perf_counter()
                _step(trainer, next(read), number)
                times.append(time.perf_counter() - start)
    return [min(times[WARM:]) for times in taken]


def _batches(trainer: Trainer, count: int) -> list[Batch]:
    if not trainer.sampler.ready:
        assert trainer.embed is not None
        everything = trainer.embed(trainer.model)
        trainer.sampler.update(torch.arange(everything.shape[0]), everything)
    trainer.batches.set_epoch(0)
    trainer.model.train()
    return [batch for batch, _ in zip(trainer.batches, range(count), strict=False)]


def _step(trainer: Trainer, batch: Batch, number: int) -> None:
    trainer.optimizer.zero_grad()
    trainer.step(batch, number)
    trainer.optimizer.step()
    if trainer.step.device.type == "cuda":
        torch.cuda.synchronize(trainer.step.device)


def _toys(plan: Plan) -> Reproduction:
    ours: Values = {}
    for row in plan.rows:
        given = plan.settings[TOY][row.name][TOY]
        medians = toy.run_toy(given["variant"], given.get("switch"), plan.seeds, given["data"]).medians
        ours[row.name] = {name: {plan.seeds[0]: value} for name, value in medians.items()}
    return Reproduction(plan, TOY, [*plan.table.metrics], ours, notes=(f"medians over {len(plan.seeds)} seeds",))


def _published(plan: Plan, data: str, column: str) -> bool:
    rows: tuple[PublishedRow, ...] = (*plan.rows, *plan.quoted)
    return any(column in row.published.get(data, {}) for row in rows)
