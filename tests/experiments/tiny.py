"""Benches of a few seconds on a small feature file, workers without processes, and readers of their results."""

import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np

from kinfold.data import Dataset, Rows, create_dataset
from kinfold.experiments import Bench, BenchState, Suite, run_bench
from kinfold.experiments.bench_folder import BenchFolder
from kinfold.experiments.result_rows import TIME_COLUMNS
from kinfold.experiments.workers.tasks import Progress, Task, TaskResult, run_task
from kinfold.training.config.parsing import merge_tables, to_toml

CLASSES, PER_CLASS, WIDTH = 16, 6, 8
BASE = {
    "model": {"dim": 4},
    "loss": {"name": "contrastive"},
    "sampler": {"name": "spc", "batch_size": 8, "per_class": 2},
    "training": {"steps": 4, "save_every": 1, "device": "cpu"},
    "evaluation": {"every": 2, "metrics": ["recall@1", "map@r"], "diagnostics": ["rho@1"]},
    "data": {"validation": 0.25},
}
SPACE = {"optimizer.lr": {"low": 1e-3, "high": 1e-1, "log": True}, "loss.margin": {"values": [0.5, 1.0]}}
# 12 runs, 2 methods x (2 trials + 4 repeats), and 8 looks at the test classes
TWELVE_RUNS = {
    "method": [{"name": "contrastive", "search": SPACE}, {"name": "triplet", "loss": {"name": "triplet"}}],
    "base": {"search": {"optimizer.lr": SPACE["optimizer.lr"]}},
    "seeds": [0, 1, 2, 3],
    "trials": 2,
}
# 4 folds x 2 methods x (2 trials + 2 repeats), and 4 looks at the test classes
SEARCHED = {**TWELVE_RUNS, "seeds": [0, 1], "protocol": "reality-check", "baseline": "triplet"}


def dataset() -> Dataset:
    """Rows around 16 centers, without a split of their own."""
    draw = np.random.default_rng(0)
    labels = np.repeat(np.arange(CLASSES), PER_CLASS)
    rows = draw.normal(size=(CLASSES, WIDTH))[labels] + 0.8 * draw.normal(size=(len(labels), WIDTH))
    names = [f"class {label:02}" for label in labels]
    return create_dataset("tiny", Rows(rows.astype(np.float32)), names, np.full(len(labels), "train"))


def feature_file(folder: Path, name: str = "tiny.npz") -> Path:
    data, path = dataset(), folder / name
    folder.mkdir(parents=True, exist_ok=True)
    assert isinstance(data.items, Rows)
    np.savez(path, embeddings=data.items.array(), labels=np.asarray(data.classes)[data.labels.numpy()])
    return path


def tables(folder: Path, **changes) -> dict:
    """The tables of a suite: one method with one seed, unless `changes` say more; `base` goes on top of BASE."""
    base = merge_tables(BASE, changes.pop("base", {}))
    data = [{"name": "tiny", "data": {"name": "features", "root": str(feature_file(folder))}}]
    return {"name": "tiny", "method": [{"name": "contrastive"}], "data": data, "seeds": [0], "base": base, **changes}


def suite(folder: Path, **changes) -> Suite:
    return Suite(**tables(folder, **changes))


def write_suite(folder: Path, **changes) -> Path:
    path = folder / "tiny.toml"
    path.write_text(to_toml(tables(folder, **changes)))
    return path


class Inline:
    """Runs every task in this process, in `wait`; `task_names` lists them in order."""

    def __init__(self, do: Callable[[Task], TaskResult] = run_task) -> None:
        self._do, self._submitted = do, list[Task]()
        self.task_names = list[str]()

    @property
    def free(self) -> int:
        return 1 - len(self._submitted)

    def submit(self, task: Task) -> None:
        self._submitted.append(task)

    def wait(self, seconds: float, progress: Progress) -> list[TaskResult]:
        tasks, self._submitted = self._submitted, []
        self.task_names += [task.name for task in tasks]
        return [self._do(task) for task in tasks]

    def stop(self) -> None:
        self._do = lambda task: TaskResult(task.name, 0.0, stopped=True)

    def close(self) -> None:
        pass


def run_inline(settings: Suite, folder: Path, workers: Inline | None = None, **options) -> tuple[BenchState, list[str]]:
    """Run a bench in this process and write its results: how it ended, and which tasks were run."""
    workers = workers or Inline()
    state = run_bench(settings, folder, lambda key: workers, **options)
    Bench.open(folder, options.get("storage")).write()
    return state, workers.task_names


def read_results(folder: Path) -> list[dict[str, str]]:
    """The rows of results.csv without times."""
    with open(BenchFolder(folder).results, newline="") as file:
        return [{key: value for key, value in row.items() if key not in TIME_COLUMNS} for row in csv.DictReader(file)]


def stat_scores(folder: Path) -> dict[str, tuple[int, int]]:
    """Every scores.json with what would change if it was written again."""
    result = {path: path.stat() for path in folder.rglob("scores.json")}
    return {str(path.relative_to(folder)): (stat.st_ino, stat.st_mtime_ns) for path, stat in result.items()}
