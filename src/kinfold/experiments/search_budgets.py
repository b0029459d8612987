"""What every method of a bench was given to search with, and what its search chose.

Methods are comparable only where they had the same number of trials, so that tables say how many were completed.
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
        trials: How many trials the suite gives to every method.
        completed: How many of them gave a value.
        failed: How many ended with an error; these count as trials.
        chosen: The settings of the best trial, which the repeats have; empty while no trial gave a value.
    """

    trials: int
    completed: int
    failed: int
    chosen: dict[str, Any]


def count_search_trials(suite: Suite, place: BenchFolder, storage: str | None) -> dict[tuple[str, str], SearchBudget]:
    """(data set, method) -> its search, for every method that has something to search.

    Args:
        suite: What is compared.
        place: The folder of the bench.
        storage: The data base of the searches; None where they lie in the folder.
    """
    if storage is None and not place.journal.is_file():
        return {}
    budgets = {}
    for data in suite.sources:
        for method in suite.methods:
            if is_searched(suite, data, method):
                search = open_study(suite, place, data, method, storage)
                completed = search.successful
                chosen = search.best().values if completed else {}
                failed = suite.trials - search.left - completed
                budgets[data, method] = SearchBudget(suite.trials, completed, failed, chosen)
    return budgets


def describe_budgets(budgets: dict[tuple[str, str], SearchBudget], data: str) -> str:
    """One line on the completed trials of every method on a data set; empty where nothing was searched."""
    here = {method: budget for (source, method), budget in budgets.items() if source == data}
    if not here:
        return ""
    counts = ", ".join(f"{method} {budget.completed}/{budget.trials}" for method, budget in here.items())
    unequal = len({budget.completed for budget in here.values()}) > 1
    warning = "; NOT EQUAL: compare these methods with care" if unequal else ""
    return f"completed trials of the search: {counts}{warning}"
