"""What a bench compares: methods x data x seeds under one protocol, as it stands in a TOML file."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kinfold import recipes, registry
from kinfold.data.folds import count_folds
from kinfold.experiments.search_space import list_corners
from kinfold.metrics.lookup import find_metric
from kinfold.registry import suggest
from kinfold.training.config.parsing import apply_changes, configure, merge_tables, parse_table, read_tables, to_toml
from kinfold.training.config.settings import RunConfig

Tables = Mapping[str, Any]
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._@=+,-]*")
SEARCH_SEED = 10_000  # of the runs of a search: none of the repeats


@dataclass(frozen=True)
class Suite:
    """A comparison.

    base: tables of a recipe that all cells share; data and methods: a name each, and tables on top of those, in this
    order. A `recipe` in any of them stands below its tables. seeds: one repeat each. trials: how many settings a search
    tries for each method and data set, the same for all; the space is the table `search` of the recipe. metric: what
    the search looks at and what is compared. baseline: compare with this method alone, not every one with every other.
    """

    name: str
    method: list[dict[str, Any]]
    data: list[dict[str, Any]]
    base: dict[str, Any] = field(default_factory=dict)
    seeds: list[int] = field(default_factory=lambda: [0, 1, 2])
    protocol: str = "classic"
    trials: int = 0
    metric: str = "map@r"
    baseline: str | None = None

    def __post_init__(self) -> None:
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
            raise ValueError(f"seeds must be different whole numbers, at least one; got {self.seeds}")
        if SEARCH_SEED in self.seeds:
            raise ValueError(f"the seed {SEARCH_SEED} is that of searches; choose another for a repeat")
        if self.trials < 0:
            raise ValueError(f"trials must be 0 or more, got {self.trials}")
        if self.baseline is not None and self.baseline not in self.methods:
            near = suggest(self.baseline, self.methods)
            raise ValueError(f"the baseline {self.baseline!r} is no method{near}; there are {', '.join(self.methods)}")
        for data in self.sources:
            for method in self.methods:
                self._checked(data, method)

    @property
    def methods(self) -> list[str]:
        return [entry["name"] for entry in self.method]

    @property
    def sources(self) -> list[str]:
        return [entry["name"] for entry in self.data]

    @property
    def folds(self) -> int:
        return count_folds(self.protocol)

    def tables(self, data: str, method: str) -> dict[str, Any]:
        """The recipe of a method on a data set, before seed and fold are filled in."""
        layers = [self.base, _named(self.data, data), _named(self.method, method)]
        return merge_tables(*(layer for entry in layers for layer in _layers(entry)))

    def build_run_tables(
        self, data: str, method: str, seed: int, fold: int, chosen: Tables | None = None
    ) -> dict[str, Any]:
        """The whole recipe of one run. The test classes are withheld from it: they are opened when all is decided."""
        tables = self.tables(data, method)
        tables.pop("search", None)
        for key, value in (chosen or {}).items():
            tables = changed_value(tables, key, value)
        given = tables.get("data", {})
        oracle = tables.get("evaluation", {}).get("selection") == "test-oracle"
        tables["data"] = {**given, "protocol": self.protocol, "fold": fold, "test": "open" if oracle else "withheld"}
        tables["seed"] = seed
        return tables

    def space(self, data: str, method: str) -> dict[str, Any]:
        """What a search may change; empty where the recipe names nothing."""
        found: dict[str, Any] = self.tables(data, method).get("search", {})
        return found

    def configuration(self, data: str, method: str) -> RunConfig:
        return configure(self.build_run_tables(data, method, self.seeds[0], 0))

    def to_toml(self) -> str:
        found = {name: value for name, value in vars(self).items() if value is not None}
        return to_toml(found)

    def _checked(self, data: str, method: str) -> None:
        try:
            given = self.configuration(data, method)
            registry.resolve("datasets", given.data.name)
            for name in (*given.evaluation.metrics, *given.evaluation.diagnostics):
                find_metric(name)
            for values in list_corners(self.space(data, method)):
                configure(self.build_run_tables(data, method, self.seeds[0], 0, values))
        except ValueError as wrong:
            raise ValueError(f"{method} on {data}: {wrong}") from None
        if self.metric not in given.evaluation.metrics:
            raise ValueError(
                f"{method} on {data}: the suite compares {self.metric}, which is not among evaluation.metrics "
                f"({', '.join(given.evaluation.metrics)})"
            )


def read_suite(path: Path | str, changes: Sequence[str] = (), roots: Mapping[str, str] | None = None) -> Suite:
    """A suite from its file; `changes`, such as "training.steps=10", go to the base; `roots` gives a data set its
    folder or file. Relative roots and recipes in the file are relative to it."""
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"there is no suite {path}")
    tables = read_tables(path)
    base = tables.get("base", {})
    tables["base"] = apply_changes(base, changes) if isinstance(base, Mapping) else base
    for entry in (tables["base"], *_entries(tables, "data"), *_entries(tables, "method")):
        own = entry.get("recipe") if isinstance(entry, dict) else None
        if isinstance(own, str) and own.endswith(".toml"):
            entry["recipe"] = str((path.parent / own).resolve())
    suite = parse_table(Suite, {"name": path.stem, **tables}, "")
    unknown = [name for name in roots or {} if name not in suite.sources]
    if unknown:
        near = suggest(unknown[0], suite.sources)
        raise ValueError(f"there is no data {unknown[0]!r} in {path}{near}; there are {', '.join(suite.sources)}")
    for entry in (suite.base, *suite.data, *suite.method):
        given = entry.get("data")
        if isinstance(given, dict) and "root" in given:
            given["root"] = str((path.parent / given["root"]).resolve())
    for entry in suite.data:
        if roots and entry["name"] in roots:
            entry["data"] = {**entry.get("data", {}), "root": str(Path(roots[entry["name"]]).resolve())}
    return suite


def changed_value(tables: Tables, key: str, value: Any) -> dict[str, Any]:
    """A copy with one value, named as in "loss.k", replaced."""
    head, _, rest = key.partition(".")
    below = tables.get(head, {})
    return {**tables, head: changed_value(below, rest, value) if rest else value}


def _entries(tables: dict[str, Any], kind: str) -> list[Any]:
    found = tables.get(kind)
    return found if isinstance(found, list) else []


def _named(entries: list[dict[str, Any]], name: str) -> dict[str, Any]:
    for entry in entries:
        if entry["name"] == name:
            return entry
    names = [entry["name"] for entry in entries]
    raise ValueError(f"there is no {name!r} in this suite{suggest(name, names)}; there are {', '.join(names)}")


def _layers(entry: dict[str, Any]) -> list[dict[str, Any]]:
    """The recipe that an entry names, and the tables it has itself."""
    own = {key: value for key, value in entry.items() if key not in ("name", "recipe")}
    return [read_tables(recipes.find_recipe(entry["recipe"])), own] if "recipe" in entry else [own]
