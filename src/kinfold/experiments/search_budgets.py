"""Trials of every method's search, and the settings that it chose.

Methods are comparable only with the same number of trials, so tables show how many were completed.
"""

from dataclasses import dataclass
from typing import Any

from kinfold.experiments.bench_folder import BenchFolder
from kinfold.experiments.schedule import is_searched, open_study
from kinfold.experiments.suite import Suite


@dataclass(frozen=True)
class SearchBudget:
    """The search of one method on one data set.

    Attributes:
        trials: Number of trials that the suite gives to every method.
        completed: How many of them have a value.
        failed: How many ended with an error; these count as trials.
        chosen: The settings of the best trial, used by the repeats; empty while no trial has a value.
    """

    trials: int
    completed: int
    failed: int
    chosen: dict[str, Any]


def read_search_budgets(
    suite: Suite, bench_folder: BenchFolder, storage: str | None
) -> dict[tuple[str, str], SearchBudget]:
    """Read the search of every method that has one.

    Args:
        suite: The suite of the bench.
        bench_folder: The folder of the bench.
        storage: URL of the database with the searches; None where they are in the folder.

    Returns:
        (data set, method) -> its search.
    """
    if storage is None and not bench_folder.journal.is_file():
        return {}
    budgets = {}
    for data in suite.datasets:
        for method in suite.methods:
            if is_searched(suite, data, method):
                study = open_study(suite, bench_folder, data, method, storage)
                completed = study.completed
                chosen = study.best().values if completed else {}
                failed = suite.trials - study.remaining - completed
                budgets[data, method] = SearchBudget(suite.trials, completed, failed, chosen)
    return budgets


def describe_budgets(budgets: dict[tuple[str, str], SearchBudget], data: str) -> str:
    """Describe the completed trials of all methods on a data set in one line; empty without a search."""
    by_method = {method: budget for (dataset, method), budget in budgets.items() if dataset == data}
    if not by_method:
        return ""
    counts = ", ".join(f"{method} {budget.completed}/{budget.trials}" for method, budget in by_method.items())
    unequal = len({budget.completed for budget in by_method.values()}) > 1
    warning = "; NOT EQUAL: compare these methods with care" if unequal else ""
    return f"completed trials of the search: {counts}{warning}"
