"""Run the plan of a published table: train its rows as a bench, time training steps, or run a toy problem."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kinfold.data import Dataset, load
from kinfold.experiments.bench import Bench
from kinfold.experiments.bench_folder import BenchFolder
from kinfold.experiments.runner import ProgressCallback, run_bench
from kinfold.experiments.workers.processes import WorkerPool
from kinfold.papers import toy
from kinfold.papers.figure_data import collect_figure_data, write_toy_arrays
from kinfold.papers.plan import ReproductionPlan
from kinfold.papers.published import PublishedRow
from kinfold.papers.step_times import FILE as TIMES
from kinfold.papers.step_times import TIMED_STEPS, StepTimer
from kinfold.papers.table_files import COLUMN_GROUPS, TOY, parse_metric
from kinfold.training.config.parsing import configure

SECONDS = "seconds per step"
RHO = "rho@2"  # of the training classes, without the largest singular value
Values = dict[str, dict[str, dict[int, float]]]  # row -> column -> seed -> value


@dataclass(frozen=True)
class RowSearch:
    """The search of one row.

    Attributes:
        trials: Number of trials.
        completed: How many of them have a value.
        values: The settings of the best trial.
    """

    trials: int
    completed: int
    values: dict[str, Any]


@dataclass(frozen=True)
class Reproduction:
    """Our numbers of a published table on one data set.

    Attributes:
        plan: The plan that was run.
        data: Name of the data set.
        columns: Columns of the table that were measured or published, in its order.
        ours: Row -> column -> seed -> value.
        failed: Task -> its error.
        inflated: Whether the training step was selected on the test classes.
        notes: Notes on the whole table.
        arrays: Row -> an .npz file with arrays for figures.
        searches: Row -> its search, for rows that were searched.
        untrained: Row -> why it is not compared.
    """

    plan: ReproductionPlan
    data: str
    columns: list[str]
    ours: Values
    failed: dict[str, str] = field(default_factory=dict)
    inflated: bool = False
    notes: tuple[str, ...] = ()
    arrays: dict[str, str] = field(default_factory=dict)
    searches: dict[str, RowSearch] = field(default_factory=dict)
    untrained: dict[str, str] = field(default_factory=dict)


def reproduce_table(
    plan: ReproductionPlan,
    folder: Path,
    workers: Callable[[BenchFolder], WorkerPool],
    *,
    watch: ProgressCallback | None = None,
    jobs: int = 1,
    threads: int = 1,
) -> Iterator[Reproduction]:
    """Run a plan, one data set after the other.

    Args:
        plan: What to run.
        folder: Every data set has a folder with a bench in it.
        workers: Creates the workers of a bench.
        watch: Called with the state of the bench, and with the result of a task that has just ended or None.
        jobs: How many runs at a time.
        threads: Number of threads for timed steps.

    Yields:
        Our numbers on each data set.

    Raises:
        ValueError: Data or weights are missing.
    """
    plan.check_ready()
    if plan.table.kind == TOY:
        yield _run_toys(plan, folder / TOY)
        return
    for data, rows in plan.settings.items():
        # errors in the data are reported once, before anything is started
        settings = configure(next(iter(rows.values()))).data
        dataset = load(settings.name, settings.root, **settings.options)
        if plan.table.kind == "runtime":
            yield _time_rows(plan, data, folder / data, dataset, threads)
        else:
            yield _train_rows(plan, data, folder / data, workers, watch, jobs)


def _train_rows(
    plan: ReproductionPlan,
    data: str,
    folder: Path,
    workers: Callable[[BenchFolder], WorkerPool],
    watch: ProgressCallback | None,
    jobs: int,
) -> Reproduction:
    run_bench(plan.build_suite(data), folder, workers, watch=watch, jobs=jobs)
    bench = Bench.open(folder)
    bench.write()
    metrics, columns = bench.metrics(data), [*plan.table.metrics]
    if plan.table.kind == "space":
        columns = metrics
    else:
        columns = [name for name in columns if parse_metric(name) in metrics or _is_published(plan, data, name)]
    ours: Values = {row.name: {} for row in plan.rows}
    for column in columns:
        result = "concatenated" if column.endswith(COLUMN_GROUPS[1]) else "separated"
        for name, values in bench.values(data, result, parse_metric(column) or column).items():
            ours[name][column] = values
    arrays: dict[str, str] = {}
    if plan.table.kind == "space":
        for row in plan.rows:
            if any(ours[row.name].values()):
                path = folder / f"curves-{row.name}.npz"
                repeat = bench.open_repeat(data, row.name, plan.seeds[0])
                areas = collect_figure_data(repeat, path, plan.table.metrics)
                for name, value in areas.items():
                    ours[row.name].setdefault(name, {plan.seeds[0]: value})
                arrays[row.name] = str(path)
        columns = [*dict.fromkeys([*columns, "roc-auc", "pr-auc"])]
        if any(column.startswith(RHO) for column in plan.table.metrics):
            columns.append(RHO)
            for row in plan.rows:
                ours[row.name][RHO] = _read_rho(bench, data, row.name)
    searches = {
        method: RowSearch(budget.trials, budget.completed, budget.chosen)
        for (_, method), budget in bench.searches.items()
    }
    return Reproduction(
        plan,
        data,
        columns,
        ours,
        bench.failures,
        bench.inflated,
        arrays=arrays,
        searches=searches,
        untrained=bench.list_untrained(data),
    )


def _time_rows(plan: ReproductionPlan, data: str, folder: Path, dataset: Dataset, threads: int) -> Reproduction:
    """Time training steps; rows with the same axis value take turns."""
    settings = plan.settings[data]
    axis = dict.fromkeys(row.x for row in plan.rows)
    groups = [{row.name: settings[row.name] for row in plan.rows if row.x == x} for x in axis]
    seconds = StepTimer(folder, dataset, threads).measure(groups)
    ours: Values = {name: {SECONDS: {plan.seeds[0]: value}} for name, value in seconds.items()}
    note = (
        f"the shortest of {TIMED_STEPS} steps, rows taking turns; {threads} threads, batches read beforehand; "
        f"{TIMES} keeps the times"
    )
    return Reproduction(plan, data, [SECONDS], ours, notes=(note,))


def _read_rho(bench: Bench, data: str, row: str) -> dict[int, float]:
    """The spectral decay of the training classes, by seed, where a repeat has it."""
    values = bench.values(data, "separated", bench.metrics(data)[0])[row]
    decays = {seed: bench.open_repeat(data, row, seed).scores["train_space"].get(RHO) for seed in values}
    return {seed: decay for seed, decay in decays.items() if decay is not None}


def _run_toys(plan: ReproductionPlan, folder: Path) -> Reproduction:
    ours: Values = {}
    arrays: dict[str, str] = {}
    folder.mkdir(parents=True, exist_ok=True)
    for row in plan.rows:
        options = plan.settings[TOY][row.name][TOY]
        medians = toy.run_toy(options["variant"], options.get("switch"), plan.seeds, options["data"]).medians
        ours[row.name] = {name: {plan.seeds[0]: value} for name, value in medians.items()}
        picture = toy.picture_toy(options["variant"], options.get("switch"), plan.seeds[0], options["data"])
        path = folder / f"curves-{row.name}.npz"
        write_toy_arrays(picture, path)
        arrays[row.name] = str(path)
    note = f"medians over {len(plan.seeds)} seeds; figures show seed {plan.seeds[0]}"
    return Reproduction(plan, TOY, [*plan.table.metrics], ours, notes=(note,), arrays=arrays)


def _is_published(plan: ReproductionPlan, data: str, column: str) -> bool:
    rows: tuple[PublishedRow, ...] = (*plan.rows, *plan.not_run)
    return any(column in row.published.get(data, {}) for row in rows)
