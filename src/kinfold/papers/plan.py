"""From a table of a paper to what has to be run: settings of every row and data set, and what must be at hand.

plan -> run (runs it) -> results (ours beside the published numbers).
"""

import inspect
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kinfold import registry
from kinfold.data.folds import count_folds
from kinfold.experiments.suite import Suite
from kinfold.models.creation import PUBLISHED
from kinfold.papers.published import PublishedRow, PublishedTable, Settings
from kinfold.papers.reading import TOY
from kinfold.papers.small_scale import SmallScale, differences
from kinfold.registry import suggest
from kinfold.training.config.parsing import apply_changes, configure

ORACLE = "test-oracle"
TOY_SEEDS = 20
ANY = ""  # the file of weights that is for whatever backbone there is


@dataclass(frozen=True)
class PlanOptions:
    """How to run a table.

    rows, data: some of them; all where empty. root: the folder with a folder for each data set, or that of the only
    one. weights: backbone -> file; ANY for whichever needs one. as_published: select as the paper did, be it on the
    test classes. seeds: repeats; those of the paper, or one, where None. trials: of a search in what the row names.
    changes: such as "training.steps=50", of all rows. small: run at that scale.
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
class Plan:
    """What will be run.

    settings: data set -> row -> tables of a recipe. needs: data set -> row -> what must be at hand. missing: what of it
    is not; while there is any, nothing can be run. notes: what differs from the paper. changes: what --set changed, as
    it was given. trials: those of every row that has something to search; 0 where none has.
    """

    table: PublishedTable
    rows: tuple[PublishedRow, ...]
    quoted: tuple[PublishedRow, ...]
    settings: dict[str, dict[str, Settings]]
    needs: dict[str, dict[str, list[str]]]
    missing: tuple[str, ...]
    notes: tuple[str, ...]
    seeds: list[int]
    trials: int = 0
    changes: tuple[str, ...] = ()

    @property
    def runs(self) -> int:
        """How many trainings that is."""
        if self.table.kind in (TOY, "runtime"):
            return 0
        return sum(
            (len(self.seeds) + (self.trials if found.get("search") else 0)) * count_folds(found["data"]["protocol"])
            for rows in self.settings.values()
            for found in rows.values()
        )

    def require(self) -> None:
        """ValueError where something is missing that it needs."""
        if self.missing:
            raise ValueError(
                f"{self.table.name} cannot be run yet: {'; '.join(self.missing)}. "
                "--dry-run shows all that it needs, --scale small runs it without any of this"
            )

    def suite(self, data: str) -> Suite:
        """The rows on one data set, as a bench."""
        found = self.settings[data]
        first = configure(next(iter(found.values())))
        return Suite(
            name=self.table.name,
            method=[{"name": name, **settings} for name, settings in found.items()],
            data=[{"name": data}],
            seeds=self.seeds,
            protocol=first.data.protocol,
            trials=self.trials,
            metric=first.evaluation.metric,
        )


def plan(table: PublishedTable, choices: PlanOptions) -> Plan:
    """What to run for a table; wrong names are a ValueError, what is not at hand is told in the plan."""
    rows = _chosen(table, choices.rows)
    if table.kind == TOY and choices.changes:
        raise ValueError(
            f"{table.name} is a toy, which has no recipe that --set could change; leave out --set {choices.changes[0]}"
        )
    settings: dict[str, dict[str, Settings]] = {}
    needs: dict[str, dict[str, list[str]]] = {}
    notes, missing = [*_told(table, choices)], dict[str, None]()
    small: dict[str, dict[str, None]] = {}
    set_values: dict[str, dict[str, None]] = {}
    places = _places(table, choices.data)
    for data in places:
        found = {}
        small_rows = _made_small(table, data, choices)
        for row in rows:
            given = _selected(row.settings(data), choices)
            if row.name in small_rows:
                for key, change in differences(given, small_rows[row.name]).items():
                    small.setdefault(key, {})[change] = None
                given = small_rows[row.name]
            with_changes = apply_changes(given, choices.changes)
            for key, change in differences(given, with_changes).items():
                set_values.setdefault(key, {})[change] = None
            found[row.name] = _with_files(with_changes, data, len(places) == 1, choices, missing)
            if table.kind != TOY:
                configure(found[row.name])  # a change may be wrong
        same = next((other for other in settings if settings[other] == found), None)
        if same is not None and choices.small is not None:
            notes.append(f"{data}: at this scale the same as {same}, and not run twice")
            continue
        settings[data] = found
        at_hand = choices.small is not None
        needs[data] = {row.name: [] if at_hand else row.needs(data) for row in rows}
    notes += [f"small scale: {key}: {', '.join(changes)}" for key, changes in small.items()]
    notes += [f"--set: {key}: {', '.join(changes)}" for key, changes in set_values.items()]
    trained = table.kind not in (TOY, "runtime")
    searched = {row for each in settings.values() for row, tables in each.items() if trained and tables.get("search")}
    notes += _describe_search(table, rows, searched, choices.trials)
    quoted = () if choices.rows else tuple(row for row in table.rows if row.quoted is not None)
    seeds = choices.seeds or (TOY_SEEDS if table.kind == TOY else table.runs or 1)
    return Plan(
        table,
        rows,
        quoted,
        settings,
        needs,
        tuple(missing),
        tuple(notes),
        [*range(seeds)],
        choices.trials if searched else 0,
        choices.changes,
    )


def _describe_search(
    table: PublishedTable, rows: Sequence[PublishedRow], searched: Container[str], trials: int
) -> list[str]:
    """Which rows are run as they stand though trials were asked for."""
    if trials == 0:
        return []
    if table.kind in (TOY, "runtime"):
        return [f"search: --trials {trials} has no effect: nothing of this table is tuned"]
    fixed = [row.name for row in rows if row.name not in searched]
    if len(fixed) == len(rows):
        return [f"search: --trials {trials} has no effect: no row of this table names what its authors tuned"]
    if fixed:
        return [f"search: {trials} trials for each row but {', '.join(fixed)}, which name nothing to search"]
    return [f"search: {trials} trials for each row"]


def _chosen(table: PublishedTable, names: Sequence[str]) -> tuple[PublishedRow, ...]:
    """Rows by their names; on a curve the name of a line stands for all of its points."""
    if not names:
        return tuple(row for row in table.rows if row.quoted is None)
    found: dict[str, PublishedRow] = {}
    for name in names:
        points = [row for row in table.rows if table.vary and row.name.rpartition("@")[0] == name]
        for row in points or [table.row(name)]:
            if row.quoted is not None:
                raise ValueError(
                    f"{table.name}: the row {row.name} is quoted from {row.quoted}: the paper did not run it, so that "
                    "there are no settings to run it with"
                )
            found[row.name] = row
    return tuple(row for row in table.rows if row.name in found)


def _places(table: PublishedTable, names: Sequence[str]) -> list[str]:
    """The data sets to run on, in the order of the table."""
    known = [*table.data] if table.kind != TOY else [TOY]
    for name in names:
        if name not in known:
            raise ValueError(f"{table.name} has no data {name!r}{suggest(name, known)}; it has {', '.join(known)}")
    return [data for data in known if not names or data in names]


def _made_small(table: PublishedTable, data: str, choices: PlanOptions) -> dict[str, Settings]:
    """All rows of a table at small scale, so that those that are run do not depend on which are; none at full scale."""
    if choices.small is None or table.kind == TOY:
        return {}
    return choices.small.table_settings(
        {row.name: _selected(row.settings(data), choices) for row in table.rows if data in row.layers}
    )


def _selected(settings: Settings, choices: PlanOptions) -> Settings:
    evaluation = settings.get("evaluation", {})
    if choices.as_published or evaluation.get("selection") != ORACLE:
        return settings
    return {**settings, "evaluation": {**evaluation, "selection": "validation"}}


def _told(table: PublishedTable, choices: PlanOptions) -> list[str]:
    """What a reader must know before comparing."""
    told = []
    if table.selection == ORACLE and choices.as_published:
        told.append("selection: on the test classes, as published; ours are inflated alike")
    elif table.selection == ORACLE:
        told.append(
            "selection: on a fifth of the training classes, held out; the paper chose on the test classes, so expect "
            "ours to be lower (--as-published does as the paper did)"
        )
    if choices.small is not None and table.kind == TOY:
        told.append("small scale: nothing to change, it is a toy already")
    elif choices.small is not None:
        told.append("small scale: other data and another network, so that the published numbers are no target")
    if table.kind == "runtime" and choices.seeds is not None:
        told.append(f"--seeds {choices.seeds} has no effect: the time of a step is measured with one seed")
    return told


def _with_files(settings: Settings, data: str, alone: bool, choices: PlanOptions, missing: dict[str, None]) -> Settings:
    """With the places of data and weights filled in; what is not there joins `missing`."""
    if "data" not in settings:  # a toy
        return settings
    made = {**settings, "data": dict(settings["data"]), "model": dict(settings.get("model", {}))}
    if choices.small is None and "root" not in made["data"]:
        root = _root(data, alone, choices.root)
        if root is None:
            missing[_no_data(data, choices.root)] = None
        else:
            made["data"]["root"] = str(root.resolve())
    backbone = str(made["model"].get("backbone", "auto"))
    if made["model"].get("weights") in PUBLISHED:
        file = choices.weights.get(backbone, choices.weights.get(ANY))
        if file is not None and file.is_file():
            made["model"]["weights"] = str(file.resolve())
        elif file is not None:
            missing[f"there is no file {file} with the weights of {backbone}"] = None
        elif not _brought_along(backbone):
            fits = registry.resolve("backbones", backbone).weight_file
            missing[f"the published weights of {backbone} are a local file: give --weights FILE ({fits})"] = None
    return made


def _root(data: str, alone: bool, root: Path | None) -> Path | None:
    if root is None:
        return None
    if (root / data).exists():
        return root / data
    return root if alone and root.exists() else None


def _no_data(data: str, root: Path | None) -> str:
    if root is None:
        return f"{data} is needed: give --root DIR with the data set in DIR/{data}"
    if not root.exists():
        return f"{data} is needed, and there is no folder {root}"
    return f"{data} is needed, and there is no folder {root / data}"


def _brought_along(backbone: str) -> bool:
    made: Any = registry.resolve("backbones", backbone.partition("/")[0])
    return "pretrained" in inspect.signature(made).parameters
