"""A suite: the methods, data sets, seeds and protocol of a bench, read from a TOML file."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kinfold import recipes, registry
from kinfold.data.folds import count_folds
from kinfold.experiments.rank_test import MIN_REPEATS
from kinfold.experiments.reference_rows import add_reference_rows
from kinfold.experiments.search.space import list_corners
from kinfold.experiments.statistics import TESTS
from kinfold.files.paths import describe_missing
from kinfold.metrics.graded import check_metric
from kinfold.registry import suggest
from kinfold.training.components import build_objective
from kinfold.training.config.parsing import apply_changes, configure, merge_tables, parse_table, read_tables, to_toml
from kinfold.training.config.settings import RunConfig

Tables = Mapping[str, Any]
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._@=+,-]*")
_CHECKED_CLASSES = 100  # for which each loss is built once, since only a loss knows which of its options fit together
SEARCH_SEED = 10_000  # of the runs of a search, different from the seeds of repeats


@dataclass(frozen=True)
class Suite:
    """What a bench compares.

    The recipe of a run is `base`, then the tables of the data set, then those of the method; later ones replace earlier
    ones. A `recipe` in any of them comes before the tables beside it.

    Args:
        name: Name of the suite, and of the folder of its bench.
        method: One table per method: its `name`, and tables of a recipe.
        data: One table per data set: its `name`, and tables of a recipe.
        base: Tables of a recipe that all runs share.
        seeds: One repeat for each of them.
        protocol: How classes are divided, as in `kinfold.data.folds`.
        trials: Trials of the search of each method on each data set. The search space is the table `search` of the
            recipe.
        trial_steps: Steps of the training of each trial; by default as many as a repeat has.
        metric: Metric that is searched for and compared.
        baseline: Compare every method with this one only.
        test: "t", Student's paired t-test, or "rank", Wilcoxon's signed-rank test, which needs six seeds or more.
        reference_rows: Measure half-whitening and whitening within classes too, which need no training, as methods of
            their own.

    Raises:
        ValueError: A name, a setting or a combination is wrong.
    """

    name: str
    method: list[dict[str, Any]]
    data: list[dict[str, Any]]
    base: dict[str, Any] = field(default_factory=dict)
    seeds: list[int] = field(default_factory=lambda: [0, 1, 2])
    protocol: str = "classic"
    trials: int = 0
    trial_steps: int | None = None
    metric: str = "map@r"
    baseline: str | None = None
    test: str = "t"
    reference_rows: bool = False

    def __post_init__(self) -> None:
        if self.reference_rows:
            object.__setattr__(self, "method", add_reference_rows(self.method))
        count_folds(self.protocol)  # raises with the nearest name
        for kind, entries in (("method", self.method), ("data", self.data)):
            names = [entry.get("name") for entry in entries]
            if not names:
                raise ValueError(f"a suite needs at least one [[{kind}]]")
            for name in names:
                if not isinstance(name, str) or not NAME.fullmatch(name):
                    raise ValueError(
                        f"every [[{kind}]] needs a name of letters, digits and . _ @ = + , - (it names a folder); "
                        f"got {name!r}"
                    )
                if names.count(name) > 1:
                    raise ValueError(f"two [[{kind}]] are called {name!r}; give each its own name")
        if not self.seeds or len({*self.seeds}) != len(self.seeds):
            raise ValueError(f"seeds must be different integers, at least one; got {self.seeds}")
        if SEARCH_SEED in self.seeds:
            raise ValueError(f"the seed {SEARCH_SEED} is reserved for searches; choose another for a repeat")
        if self.trials < 0:
            raise ValueError(f"trials must be 0 or more, got {self.trials}")
        if self.trial_steps is not None and not (self.trials and self.trial_steps > 0):
            raise ValueError(
                f"trial_steps = {self.trial_steps} is the length of each trial: give a number above 0, and with it "
                "trials = 1 or more"
            )
        if self.baseline is not None and self.baseline not in self.methods:
            near = suggest(self.baseline, self.methods)
            raise ValueError(f"the baseline {self.baseline!r} is no method{near}; there are {', '.join(self.methods)}")
        if self.test not in TESTS:
            raise ValueError(f"there is no test {self.test!r}{suggest(self.test, TESTS)}; choose {' or '.join(TESTS)}")
        if self.test == "rank" and len(self.seeds) < MIN_REPEATS:
            raise ValueError(
                f'test = "rank" needs {MIN_REPEATS} seeds or more, because fewer can never be significant at 5 %; got '
                f"{len(self.seeds)}"
            )
        for data in self.datasets:
            for method in self.methods:
                self._check_recipe(data, method)

    @property
    def methods(self) -> list[str]:
        """Names of the methods."""
        return [entry["name"] for entry in self.method]

    @property
    def datasets(self) -> list[str]:
        """Names of the data sets."""
        return [entry["name"] for entry in self.data]

    @property
    def folds(self) -> int:
        """Number of folds of the protocol, which is the number of runs of a repeat."""
        return count_folds(self.protocol)

    def tables(self, data: str, method: str) -> dict[str, Any]:
        """Merge the recipe of a method on a data set, without seed and fold."""
        layers = [self.base, _find_entry(self.data, data), _find_entry(self.method, method)]
        return merge_tables(*(layer for entry in layers for layer in _list_layers(entry)))

    def build_run_tables(
        self, data: str, method: str, seed: int, fold: int, chosen: Tables | None = None
    ) -> dict[str, Any]:
        """Build the complete recipe of one run. The test classes are withheld from it.

        Args:
            data: Name of the data set.
            method: Name of the method.
            seed: Seed of the run.
            fold: Fold of the protocol.
            chosen: Settings that the search chose, as in {"optimizer.lr": 0.01}.
        """
        tables = self.tables(data, method)
        tables.pop("search", None)
        for key, value in (chosen or {}).items():
            tables = replace_value(tables, key, value)
        oracle = tables.get("evaluation", {}).get("selection") == "test-oracle"
        test = "open" if oracle else "withheld"
        tables["data"] = {**tables.get("data", {}), "protocol": self.protocol, "fold": fold, "test": test}
        tables["seed"] = seed
        return tables

    def search_space(self, data: str, method: str) -> dict[str, Any]:
        """Return the table `search` of a method's recipe; empty where it has none."""
        table: dict[str, Any] = self.tables(data, method).get("search", {})
        return table

    def build_config(self, data: str, method: str) -> RunConfig:
        """Build the configuration of a method's first run."""
        return configure(self.build_run_tables(data, method, self.seeds[0], 0))

    def to_toml(self) -> str:
        """Write the suite as TOML."""
        return to_toml({name: value for name, value in vars(self).items() if value is not None})

    def _check_recipe(self, data: str, method: str) -> None:
        try:
            config = self.build_config(data, method)
            registry.resolve("datasets", config.data.name)
            for name in (*config.evaluation.metrics, *config.evaluation.diagnostics):
                check_metric(name)
            build_objective(config, _CHECKED_CLASSES)
            for values in list_corners(self.search_space(data, method)):
                tables = self.build_run_tables(data, method, self.seeds[0], 0, values)
                build_objective(configure(tables), _CHECKED_CLASSES)
        except ValueError as error:
            raise ValueError(f"{method} on {data}: {error}") from None
        if self.metric not in config.evaluation.metrics:
            raise ValueError(
                f"{method} on {data}: the suite compares {self.metric}, which is not among evaluation.metrics "
                f"({', '.join(config.evaluation.metrics)})"
            )


def read_suite(path: Path | str, changes: Sequence[str] = (), roots: Mapping[str, str] | None = None) -> Suite:
    """Read a suite from a TOML file.

    Args:
        path: The file. Relative roots and recipes in it are relative to the file.
        changes: Other values of the base, such as "training.steps=10".
        roots: Data set -> its folder or file.

    Returns:
        The suite, checked.

    Raises:
        ValueError: The file does not exist, or something in it is wrong.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(describe_missing(path, "suite"))
    if path.suffix.lower() in (".npz", ".npy", ".parquet"):
        raise ValueError(f"{path} holds data, not a suite: kinfold bench --losses margin,triplet --root {path}")
    tables = read_tables(path)
    base = tables.get("base", {})
    tables["base"] = apply_changes(base, changes) if isinstance(base, Mapping) else base
    for entry in (tables["base"], *_list_entries(tables, "data"), *_list_entries(tables, "method")):
        recipe = entry.get("recipe") if isinstance(entry, dict) else None
        if isinstance(recipe, str) and recipe.endswith(".toml"):
            entry["recipe"] = str((path.parent / recipe).resolve())
    suite = parse_table(Suite, {"name": path.stem, **tables}, "")
    unknown = [name for name in roots or {} if name not in suite.datasets]
    if unknown:
        near = suggest(unknown[0], suite.datasets)
        raise ValueError(f"there is no data {unknown[0]!r} in {path}{near}; there are {', '.join(suite.datasets)}")
    for entry in (suite.base, *suite.data, *suite.method):
        table = entry.get("data")
        if isinstance(table, dict) and "root" in table:
            table["root"] = str((path.parent / table["root"]).resolve())
    for entry in suite.data:
        if roots and entry["name"] in roots:
            entry["data"] = {**entry.get("data", {}), "root": str(Path(roots[entry["name"]]).resolve())}
    return suite


def replace_value(tables: Tables, key: str, value: Any) -> dict[str, Any]:
    """Return a copy with one value, named as in "loss.k", replaced."""
    head, _, rest = key.partition(".")
    return {**tables, head: replace_value(tables.get(head, {}), rest, value) if rest else value}


def _list_entries(tables: dict[str, Any], kind: str) -> list[Any]:
    entries = tables.get(kind)
    return entries if isinstance(entries, list) else []


def _find_entry(entries: list[dict[str, Any]], name: str) -> dict[str, Any]:
    for entry in entries:
        if entry["name"] == name:
            return entry
    names = [entry["name"] for entry in entries]
    raise ValueError(f"there is no {name!r} in this suite{suggest(name, names)}; there are {', '.join(names)}")


def _list_layers(entry: dict[str, Any]) -> list[dict[str, Any]]:
    """The recipe that an entry names, then the tables of the entry."""
    tables = {key: value for key, value in entry.items() if key not in ("name", "recipe")}
    return [read_tables(recipes.find_recipe(entry["recipe"])), tables] if "recipe" in entry else [tables]
