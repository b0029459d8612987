"""What lies in a folder, for a report: methods on data sets, each with its repeats by seed."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from kinfold.data.folds import count_folds
from kinfold.experiments import Bench
from kinfold.experiments.bench_folder import BenchFolder, BenchRun
from kinfold.experiments.repeat import Repeat, fold_folder, is_repeat
from kinfold.files.paths import check_path
from kinfold.training import Run
from kinfold.training.config.parsing import to_tables, to_toml
from kinfold.training.config.settings import RunConfig
from kinfold.training.folder import RunFolder

LARGEST = 100  # folds of a protocol


@dataclass(frozen=True, eq=False)
class Repetition:
    """One seed of a method. runs: those of its folds that were begun. whole: all folds together, where the test classes
    are opened when all of them are trained; None where a fold is not begun. alone: a run on its own, which looks at its
    test classes itself."""

    seed: int
    runs: Sequence[Run]
    whole: Repeat | None = None
    alone: bool = False

    @property
    def complete(self) -> bool:
        """Whether nothing is left to decide, so that the test classes may be looked at."""
        if self.whole is not None:
            return self.whole.tested
        return self.alone and self.runs[0].finished

    @property
    def space(self) -> Run | Repeat | None:
        """What to embed with: all folds side by side once the test classes were opened, else the first of them."""
        if self.whole is not None and self.whole.tested:
            return self.whole
        return self.runs[0] if self.runs else None


@dataclass(frozen=True, eq=False)
class Subject:
    """A method on a data set."""

    data: str
    method: str
    repetitions: Sequence[Repetition]

    @property
    def runs(self) -> list[Run]:
        return [run for repetition in self.repetitions for run in repetition.runs]

    def named(self, repetition: Repetition) -> str:
        return f"{self.method}, seed {repetition.seed}"


@dataclass(frozen=True, eq=False)
class ReportInputs:
    """A folder with its subjects; bench: where it is one; unopened: runs beside them that could not be read, and
    why."""

    folder: Path
    subjects: Sequence[Subject]
    bench: Bench | None = None
    unopened: Sequence[str] = ()

    @property
    def data(self) -> list[str]:
        return [*dict.fromkeys(subject.data for subject in self.subjects)]

    @property
    def seeds(self) -> list[int]:
        return sorted({repetition.seed for subject in self.subjects for repetition in subject.repetitions})

    @property
    def protocol(self) -> str:
        if self.bench is not None:
            return self.bench.suite.protocol
        return self.subjects[0].runs[0].config.data.protocol

    @property
    def kind(self) -> str:
        """run: one repeat of one method; bench: everything else."""
        single = len(self.subjects) == len(self.subjects[0].repetitions) == 1
        return "run" if self.bench is None and single else "bench"

    @cached_property
    def failures(self) -> dict[str, str]:
        """Cell of a bench -> what went wrong. What went wrong in a search is told by the bench itself."""
        if self.bench is None:
            return {}
        suite, place = self.bench.suite, self.bench.place
        found: dict[str, str] = {}
        for subject in self.subjects:
            for seed in suite.seeds:
                cells = [BenchRun(subject.data, subject.method, seed, fold) for fold in range(suite.folds)]
                for name in (*(cell.name for cell in cells), cells[0].repeat):
                    record = place.record(name)
                    if record is not None and record["error"] is not None:
                        found[name] = record["error"]
        return found


def find_inputs(folder: Path | str) -> ReportInputs:
    """A run, a repeat, a bench, or a folder of runs; ValueError where it is none of these."""
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f"there is no folder {folder}; give that of a run (kinfold train) or a bench (kinfold bench)")
    if BenchFolder(folder).begun:
        return _bench(Bench.open(folder))
    if is_repeat(folder):
        for fold in range(LARGEST):
            check_path(fold_folder(folder, fold), folder)
        runs = _begun(fold_folder(folder, fold) for fold in range(LARGEST))
        if not runs:
            raise ValueError(f"{folder} is the folder of a repeat of which nothing was begun yet")
        seed, named = runs[0].config.seed, runs[0].config
        return ReportInputs(folder, [Subject(data_name(named), method_name(named), [_repetition(folder, seed, runs)])])
    if RunFolder(folder).begun:
        run = Run.open(folder)
        given = run.config
        return ReportInputs(
            folder, [Subject(data_name(given), method_name(given), [Repetition(given.seed, [run], alone=True)])]
        )
    runs, unopened = _readable(path for path in sorted(folder.iterdir()) if path.is_dir())
    if runs:
        return ReportInputs(folder, _grouped(runs), unopened=unopened)
    if unopened:
        raise ValueError(unopened[0])
    below = [path.parent.name for path in sorted(folder.glob("*/suite.toml"))]
    advice = f"; it holds benches, give one of them: {', '.join(below)}" if below else ""
    raise ValueError(f"{folder} is neither a run, nor a bench, nor a folder of runs{advice}")


def method_name(given: RunConfig) -> str:
    return given.loss.name if given.miner is None else f"{given.loss.name} + {given.miner.name}"


def data_name(given: RunConfig) -> str:
    """That of the data set, or of the folder or file that somebody's own data lies in."""
    own = given.data.name in ("folder", "table", "features") and given.data.root is not None
    return Path(str(given.data.root)).stem if own else given.data.name


def _bench(bench: Bench) -> ReportInputs:
    suite, place = bench.suite, bench.place.path
    subjects = []
    for data in suite.sources:
        for method in suite.methods:
            repetitions = []
            for seed in suite.seeds:
                cells = [BenchRun(data, method, seed, fold) for fold in range(suite.folds)]
                runs = _begun(bench.place.inside(cell.name) for cell in cells)
                repetitions.append(_repetition(place / cells[0].repeat, seed, runs))
            subjects.append(Subject(data, method, repetitions))
    return ReportInputs(place, subjects, bench)


def _repetition(folder: Path, seed: int, runs: Sequence[Run]) -> Repetition:
    begun = bool(runs) and len(runs) == count_folds(runs[0].config.data.protocol)
    return Repetition(seed, runs, Repeat(folder, runs) if begun else None)


def _begun(folders: Iterable[Path]) -> list[Run]:
    return [Run.open(folder) for folder in folders if RunFolder(folder).begun]


def _readable(folders: Iterable[Path]) -> tuple[list[Run], list[str]]:
    """Runs, and why others are none that can be shown, as where a plugin is missing."""
    runs, unopened = list[Run](), list[str]()
    for folder in folders:
        try:
            runs += _begun([folder])
        except ValueError as wrong:
            unopened.append(str(wrong))
    return runs, unopened


def _grouped(runs: Sequence[Run]) -> list[Subject]:
    """Runs that differ in nothing but their seeds are one method, called by what their folders have in common."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(to_toml(to_tables(replace(run.config, seed=0))), []).append(run)
    split: list[list[Run]] = []
    for group in groups.values():
        seeds = Counter(run.config.seed for run in group)
        split += [group] if max(seeds.values()) == 1 else [[run] for run in group]
    names = [_name(group) for group in split]
    unclear = {name for name, count in Counter(names).items() if count > 1}
    subjects = []
    for name, group in zip(names, split, strict=True):
        own = group[0].folder.name if name in unclear else name
        repetitions = [Repetition(run.config.seed, [run], alone=True) for run in group]
        subjects.append(Subject(data_name(group[0].config), own, repetitions))
    return subjects


def _name(group: Sequence[Run]) -> str:
    """What their folders have in common; where that is loss and miner, as both are written elsewhere."""
    common, full = _common(group), method_name(group[0].config)
    return full if full.replace(" + ", "-") == common else common


def _common(group: Sequence[Run]) -> str:
    """Its folder's name without the number of the seed."""
    seed = group[0].config.seed
    return re.sub(rf"(?<=.)[-_. ]?(seed)?[-_. ]?{seed}$", "", group[0].folder.name)
