"""Plan what has to be run for a published table: the settings of every row and data set, and what they need."""

import inspect
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kinfold import registry
from kinfold.data.folds import count_folds
from kinfold.experiments.suite import Suite
from kinfold.models.creation import PUBLISHED
from kinfold.papers.published import PublishedRow, PublishedTable, Settings, load_table
from kinfold.papers.small_scale import SmallScale, describe_differences
from kinfold.papers.table_files import TOY
from kinfold.registry import suggest
from kinfold.training.config.parsing import apply_changes, configure

ORACLE = "test-oracle"
TOY_SEEDS = 20
ANY_BACKBONE = ""  # key of a file of weights that no backbone was given for


@dataclass(frozen=True)
class PlanOptions:
    """How to run a published table.

    Args:
        rows: Names of rows; all where empty.
        data: Names of data sets; all where empty.
        root: The folder with a folder for each data set, or that of the only one.
        weights: Backbone -> file of its weights; `ANY_BACKBONE` for all others.
        as_published: Select the training step as the paper did, even on the test classes.
        seeds: Number of repeats; that of the paper, or one, where None.
        trials: Trials of a search, for rows that say what was tuned.
        changes: Other settings of all rows, such as "training.steps=50".
        small: Run on small data.
    """

    rows: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    root: Path | None = None
    weights: Mapping[str, Path] = field(default_factory=dict)
    as_published: bool = False
    seeds: int | None = None
    trials: int = 0
    changes: tuple[str, ...] = ()
    small: SmallScale | None = None

    def __post_init__(self) -> None:
        if self.seeds is not None and self.seeds < 1:
            raise ValueError(f"--seeds must be at least 1, got {self.seeds}")
        if self.trials < 0:
            raise ValueError(f"--trials must be 0 or more, got {self.trials}")


@dataclass(frozen=True)
class ReproductionPlan:
    """What will be run for a published table.

    Attributes:
        table: The table.
        rows: The rows to run.
        not_run: Rows that are numbers only, which are shown and not run.
        settings: Data set -> row -> tables of a recipe.
        needs: Data set -> row -> data, weights and packages that it needs.
        missing: What of it was not found. The plan runs only when this is empty.
        notes: Differences from the paper.
        seeds: Seeds of the repeats.
        trials: Trials of the search of every row that has one; 0 where none has.
        changes: Changes of `PlanOptions`.
    """

    table: PublishedTable
    rows: tuple[PublishedRow, ...]
    not_run: tuple[PublishedRow, ...]
    settings: dict[str, dict[str, Settings]]
    needs: dict[str, dict[str, list[str]]]
    missing: tuple[str, ...]
    notes: tuple[str, ...]
    seeds: list[int]
    trials: int = 0
    changes: tuple[str, ...] = ()

    @property
    def runs(self) -> int:
        """Number of trainings."""
        if self.table.kind in (TOY, "runtime"):
            return 0
        return sum(
            (len(self.seeds) + (self.trials if tables.get("search") else 0)) * count_folds(tables["data"]["protocol"])
            for rows in self.settings.values()
            for tables in rows.values()
        )

    def check_ready(self) -> None:
        """Raise ValueError where something is missing."""
        if self.missing:
            raise ValueError(
                f"{self.table.name} cannot be run yet: {'; '.join(self.missing)}. "
                "--dry-run shows all that it needs, --scale small runs it without any of this"
            )

    def build_suite(self, data: str) -> Suite:
        """Build the suite of a bench with all rows on one data set."""
        rows = self.settings[data]
        first = configure(next(iter(rows.values())))
        return Suite(
            name=self.table.name,
            method=[{"name": name, **settings} for name, settings in rows.items()],
            data=[{"name": data}],
            seeds=self.seeds,
            protocol=first.data.protocol,
            trials=self.trials,
            metric=first.evaluation.metric,
        )


def plan_table(table: PublishedTable, options: PlanOptions) -> ReproductionPlan:
    """Plan what to run for a published table.

    Args:
        table: The table.
        options: Which rows and data sets, and how.

    Returns:
        The plan. Data and weights that are missing are listed in it.

    Raises:
        ValueError: A name or a setting is wrong.
    """
    rows = _select_rows(table, options.rows)
    if table.kind == TOY and options.changes:
        raise ValueError(
            f"{table.name} is a toy problem without a recipe that --set could change; leave out --set "
            f"{options.changes[0]}"
        )
    settings: dict[str, dict[str, Settings]] = {}
    needs: dict[str, dict[str, list[str]]] = {}
    notes, missing = [*_describe_options(table, options)], dict[str, None]()
    small_changes: dict[str, dict[str, None]] = {}
    set_changes: dict[str, dict[str, None]] = {}
    datasets = _select_data(table, options.data)
    for data in datasets:
        planned = {}
        small_rows = _shrink_rows(table, data, options)
        for row in rows:
            tables = _replace_selection(row.settings(data), options)
            if row.name in small_rows:
                _collect_differences(tables, small_rows[row.name], small_changes)
                tables = small_rows[row.name]
            changed = apply_changes(tables, options.changes)
            _collect_differences(tables, changed, set_changes)
            planned[row.name] = _fill_in_files(changed, data, len(datasets) == 1, options, missing)
            if table.kind != TOY:
                configure(planned[row.name])  # raises where a change is wrong
        same = next((other for other in settings if settings[other] == planned), None)
        if same is not None and options.small is not None:
            notes.append(f"{data}: at this scale the same as {same}, and not run twice")
            continue
        settings[data] = planned
        needs[data] = {row.name: [] if options.small is not None else row.needs(data) for row in rows}
    notes += [f"small scale: {key}: {', '.join(changes)}" for key, changes in small_changes.items()]
    notes += [f"--set: {key}: {', '.join(changes)}" for key, changes in set_changes.items()]
    trained = table.kind not in (TOY, "runtime")
    searched = {row for each in settings.values() for row, tables in each.items() if trained and tables.get("search")}
    notes += _describe_search(table, rows, searched, options.trials)
    seeds = options.seeds or (TOY_SEEDS if table.kind == TOY else table.runs or 1)
    return ReproductionPlan(
        table,
        rows,
        () if options.rows else tuple(row for row in table.rows if row.not_run is not None),
        settings,
        needs,
        tuple(missing),
        tuple(notes),
        [*range(seeds)],
        options.trials if searched else 0,
        options.changes,
    )


def plan_tables(names: Sequence[str], options: PlanOptions) -> list[ReproductionPlan]:
    """Plan several published tables.

    Args:
        names: Names of the tables. Of several tables, those that have none of `options.data` are left out.
        options: Which rows and data sets, and how.

    Returns:
        The plans.

    Raises:
        ValueError: Nothing is left to run, or an option has no effect.
    """
    if options.rows and len(names) > 1:
        raise ValueError("--row chooses rows of one table: give the name of only that table")
    plans = []
    for name in names:
        table, data = load_table(name), options.data
        if len(names) > 1 and data:
            data = tuple(dataset for dataset in data if dataset in table.data)
            if not data:
                continue
        plans.append(plan_table(table, replace(options, data=data)))
    if not plans:
        raise ValueError(f"none of these tables is on {', '.join(options.data)}")
    if options.trials and not any(plan.trials for plan in plans):
        raise ValueError(
            f"--trials {options.trials}: none of these rows says what its authors tuned (a table `search`); leave out "
            "--trials, or choose rows that have one: --dry-run --json shows it"
        )
    return plans


def parse_weights(entries: Sequence[str]) -> dict[str, Path]:
    """Parse files of weights.

    Args:
        entries: FILE, or BACKBONE=FILE. A name with "=" that does not start with a backbone is a file.

    Returns:
        Backbone -> file, or `ANY_BACKBONE` -> file.
    """
    backbones = registry.names("backbones")
    files = {}
    for entry in entries:
        backbone, equals, file = entry.partition("=")
        has_backbone = bool(equals) and backbone.partition("/")[0] in backbones
        files[backbone if has_backbone else ANY_BACKBONE] = Path(file if has_backbone else entry)
    return files


def _describe_search(
    table: PublishedTable, rows: Sequence[PublishedRow], searched: Container[str], trials: int
) -> list[str]:
    """Which rows are searched, and which are not although trials were asked for."""
    if trials == 0:
        return []
    if table.kind in (TOY, "runtime"):
        return [f"search: --trials {trials} has no effect: nothing in this table is tuned"]
    fixed = [row.name for row in rows if row.name not in searched]
    if len(fixed) == len(rows):
        return [f"search: --trials {trials} has no effect: no row of this table says what its authors tuned"]
    if fixed:
        return [f"search: {trials} trials for each row; there is nothing to search in {', '.join(fixed)}"]
    return [f"search: {trials} trials for each row"]


def _select_rows(table: PublishedTable, names: Sequence[str]) -> tuple[PublishedRow, ...]:
    """Rows by name; on a curve the name of a line means all of its points."""
    if not names:
        return tuple(row for row in table.rows if row.not_run is None)
    selected = set()
    for name in names:
        points = [row for row in table.rows if table.vary and row.name.rpartition("@")[0] == name]
        for row in points or [table.row(name)]:
            if row.not_run is not None:
                raise ValueError(f"{table.name}: the row {row.name} is a number only: {row.not_run}")
            selected.add(row.name)
    return tuple(row for row in table.rows if row.name in selected)


def _select_data(table: PublishedTable, names: Sequence[str]) -> list[str]:
    """The data sets to run on, in the order of the table."""
    datasets = [*table.data] if table.kind != TOY else [TOY]
    for name in names:
        if name not in datasets:
            near = suggest(name, datasets)
            raise ValueError(f"{table.name} has no data {name!r}{near}; it has {', '.join(datasets)}")
    return [data for data in datasets if not names or data in names]


def _shrink_rows(table: PublishedTable, data: str, options: PlanOptions) -> dict[str, Settings]:
    """All rows at small scale, so that a row does not depend on which others are run; empty at full scale."""
    if options.small is None or table.kind == TOY:
        return {}
    return options.small.shrink_rows(
        {row.name: _replace_selection(row.settings(data), options) for row in table.rows if data in row.layers},
        timed=table.kind == "runtime",
    )


def _replace_selection(settings: Settings, options: PlanOptions) -> Settings:
    """Select on validation classes instead of the test classes, unless the paper's way was asked for."""
    evaluation = settings.get("evaluation", {})
    if options.as_published or evaluation.get("selection") != ORACLE:
        return settings
    return {**settings, "evaluation": {**evaluation, "selection": "validation"}}


def _collect_differences(before: Settings, after: Settings, changes: dict[str, dict[str, None]]) -> None:
    for key, change in describe_differences(before, after).items():
        changes.setdefault(key, {})[change] = None


def _describe_options(table: PublishedTable, options: PlanOptions) -> list[str]:
    """What a reader must know before comparing."""
    notes = []
    if table.selection == ORACLE and options.as_published:
        notes.append("selection: on the test classes, as published; our numbers are inflated in the same way")
    elif table.selection == ORACLE:
        notes.append(
            "selection: on a held-out fifth of the training classes; the paper selected on the test classes, so expect "
            "lower numbers (--as-published selects as the paper did)"
        )
    if options.small is not None and table.kind == TOY:
        notes.append("small scale: no change, the toy problem is small already")
    elif options.small is not None:
        notes.append("small scale: other data and another network, so the published numbers are no target")
    if table.kind == "runtime" and options.seeds is not None:
        notes.append(f"--seeds {options.seeds} has no effect: the time of a step is measured with one seed")
    return notes


def _fill_in_files(
    settings: Settings, data: str, only_data: bool, options: PlanOptions, missing: dict[str, None]
) -> Settings:
    """Settings with the paths of data and weights; what was not found is added to `missing`."""
    if "data" not in settings:  # a toy
        return settings
    tables = {**settings, "data": dict(settings["data"]), "model": dict(settings.get("model", {}))}
    if options.small is None and "root" not in tables["data"]:
        root = _find_root(data, only_data, options.root)
        if root is None:
            missing[_describe_missing_data(data, options.root)] = None
        else:
            tables["data"]["root"] = str(root.resolve())
    backbone = str(tables["model"].get("backbone", "auto"))
    if tables["model"].get("weights") in PUBLISHED:
        file = options.weights.get(backbone, options.weights.get(ANY_BACKBONE))
        if file is not None and file.is_file():
            tables["model"]["weights"] = str(file.resolve())
        elif file is not None:
            missing[f"there is no file {file} with the weights of {backbone}"] = None
        elif not _downloads_weights(backbone):
            expected = registry.resolve("backbones", backbone).weight_file
            missing[f"the published weights of {backbone} are a local file: give --weights FILE ({expected})"] = None
    return tables


def _find_root(data: str, only_data: bool, root: Path | None) -> Path | None:
    if root is None:
        return None
    if (root / data).exists():
        return root / data
    return root if only_data and root.exists() else None


def _describe_missing_data(data: str, root: Path | None) -> str:
    if root is None:
        return f"{data} is needed: give --root DIR with the data set in DIR/{data}"
    if not root.exists():
        return f"{data} is needed, and there is no folder {root}"
    return f"{data} is needed, and there is no folder {root / data}"


def _downloads_weights(backbone: str) -> bool:
    """Whether the library of a backbone includes or downloads its weights."""
    model_class: Any = registry.resolve("backbones", backbone.partition("/")[0])
    return "pretrained" in inspect.signature(model_class).parameters
