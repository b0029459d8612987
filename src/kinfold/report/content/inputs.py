"""What a folder holds for a report: methods on datasets, each with its repeats by seed."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from kinfold.adaptation.folder import AdaptationFolder
from kinfold.data.folds import count_folds
from kinfold.experiments import Bench
from kinfold.experiments.bench_folder import BenchFolder, BenchRun
from kinfold.experiments.repeat import Repeat, fold_folder, is_repeat
from kinfold.files.paths import check_path, describe_missing
from kinfold.training import Run
from kinfold.training.config.parsing import to_tables, to_toml
from kinfold.training.config.settings import RunConfig
from kinfold.training.run_folder import RunFolder

MAX_FOLDS = 100  # of a protocol


@dataclass(frozen=True, eq=False)
class ReportRepeat:
    """One seed of a method.

    Args:
        seed: The seed.
        runs: Runs of its folds that were started.
        repeat: All folds together; None if a fold was not started. It evaluates the test classes after all are trained.
        standalone: Whether it is a single run that evaluates its test classes itself.
    """

    seed: int
    runs: Sequence[Run]
    repeat: Repeat | None = None
    standalone: bool = False

    @property
    def complete(self) -> bool:
        """Whether nothing is left to decide, so that the test classes may be shown."""
        if self.repeat is not None:
            return self.repeat.tested
        return self.standalone and self.runs[0].finished

    @property
    def embedder(self) -> Run | Repeat | None:
        """What embeds items: all folds side by side after the test, else the first fold; None before any."""
        if self.repeat is not None and self.repeat.tested:
            return self.repeat
        return self.runs[0] if self.runs else None


@dataclass(frozen=True, eq=False)
class ReportMethod:
    """A method on a dataset.

    Args:
        data: Name of the dataset.
        name: Name of the method.
        repeats: Its repeats, one for each seed.
    """

    data: str
    name: str
    repeats: Sequence[ReportRepeat]

    @property
    def runs(self) -> list[Run]:
        """Runs of all repeats and folds."""
        return [run for repeat in self.repeats for run in repeat.runs]

    def label(self, repeat: ReportRepeat) -> str:
        """Name of one repeat in messages and legends."""
        return f"{self.name}, seed {repeat.seed}"


@dataclass(frozen=True, eq=False)
class ReportInputs:
    """What lies in a folder.

    Args:
        folder: The folder.
        methods: Methods on datasets.
        bench: The benchmark, if the folder is one.
        unreadable: Why some runs in the folder could not be opened.
    """

    folder: Path
    methods: Sequence[ReportMethod]
    bench: Bench | None = None
    unreadable: Sequence[str] = ()

    @property
    def data(self) -> list[str]:
        """Names of the datasets."""
        return [*dict.fromkeys(method.data for method in self.methods)]

    @property
    def seeds(self) -> list[int]:
        """Seeds of all repeats."""
        return sorted({repeat.seed for method in self.methods for repeat in method.repeats})

    @property
    def protocol(self) -> str:
        """Name of the protocol that assigns classes to splits."""
        if self.bench is not None:
            return self.bench.suite.protocol
        return self.methods[0].runs[0].config.data.protocol

    @property
    def kind(self) -> str:
        """ "run" for one repeat of one method, else "bench"."""
        single = len(self.methods) == len(self.methods[0].repeats) == 1
        return "run" if self.bench is None and single else "bench"

    @property
    def method_styles(self) -> dict[str, int]:
        """Method -> its number, which gives it the same color and dash in all charts."""
        return {name: number for number, name in enumerate(dict.fromkeys(method.name for method in self.methods))}

    @cached_property
    def failures(self) -> dict[str, str]:
        """Run or repeat of a benchmark -> its error. Errors in a hyper-parameter search are not included."""
        if self.bench is None:
            return {}
        suite, folder = self.bench.suite, self.bench.bench_folder
        failures: dict[str, str] = {}
        for method in self.methods:
            for seed in suite.seeds:
                runs = [BenchRun(method.data, method.name, seed, fold) for fold in range(suite.folds)]
                for name in (*(run.name for run in runs), runs[0].repeat_name):
                    record = folder.read_record(name)
                    if record is not None and record["error"] is not None:
                        failures[name] = record["error"]
        return failures


def find_inputs(folder: Path | str) -> ReportInputs:
    """Find the runs in a folder of a run, a repeat, a benchmark, or several runs.

    Raises:
        ValueError: The folder is none of these.
    """
    folder = Path(folder)
    if not folder.is_dir():
        missing = f"{folder} is a file" if folder.is_file() else describe_missing(folder, "folder")
        raise ValueError(f"{missing}; give the folder of a run (kinfold train) or a bench (kinfold bench)")
    if BenchFolder(folder).started:
        return _open_bench(Bench.open(folder))
    if is_repeat(folder):
        for fold in range(MAX_FOLDS):
            check_path(fold_folder(folder, fold), folder)
        runs = _open_started(fold_folder(folder, fold) for fold in range(MAX_FOLDS))
        if not runs:
            raise ValueError(f"{folder} is the folder of a repeat of which no run was started yet")
        config = runs[0].config
        repeat = _create_repeat(folder, config.seed, runs)
        return ReportInputs(folder, [ReportMethod(name_data(config), name_method(config), [repeat])])
    if RunFolder(folder).begun:
        run = Run.open(folder)
        repeat = ReportRepeat(run.config.seed, [run], standalone=True)
        return ReportInputs(folder, [ReportMethod(name_data(run.config), _name_run(run), [repeat])])
    runs, unreadable = _open_readable(path for path in sorted(folder.iterdir()) if path.is_dir())
    if runs:
        return ReportInputs(folder, _group_by_method(runs), unreadable=unreadable)
    if unreadable:
        raise ValueError(unreadable[0])
    benches = [path.parent.name for path in sorted(folder.glob("*/suite.toml"))]
    advice = (
        f"; it holds benches, give one of them: {', '.join(benches)}"
        if benches
        else "; kinfold train and kinfold adapt make runs"
    )
    raise ValueError(f"{folder} is neither a run, nor a bench, nor a folder of runs{advice}")


def name_method(config: RunConfig) -> str:
    """Name a method by its loss and miner; a run without a step by where its head starts."""
    if config.training.steps == 0:
        return "as given" if config.model.head == "identity" else f"{config.model.init}, not trained"
    return config.loss.name if config.miner is None else f"{config.loss.name} + {config.miner.name}"


def _name_run(run: Run) -> str:
    """Name a run by its method; one that `kinfold adapt` computed without a training step by its winner."""
    files = AdaptationFolder(run.folder)
    if run.config.training.steps == 0 and files.finished:
        try:
            return str(files.read_final()["winner"])
        except ValueError:  # damaged; the section of adaptations says so
            pass
    return name_method(run.config)


def name_data(config: RunConfig) -> str:
    """Return the name of a registered dataset, or of the folder or file of the user's data."""
    from_files = config.data.name in ("folder", "table", "features") and config.data.root is not None
    return Path(str(config.data.root)).stem if from_files else config.data.name


def _open_bench(bench: Bench) -> ReportInputs:
    suite, folder = bench.suite, bench.bench_folder.path
    methods = []
    for data in suite.datasets:
        for method in suite.methods:
            repeats = []
            for seed in suite.seeds:
                bench_runs = [BenchRun(data, method, seed, fold) for fold in range(suite.folds)]
                runs = _open_started(bench.bench_folder.resolve_path(run.name) for run in bench_runs)
                repeats.append(_create_repeat(folder / bench_runs[0].repeat_name, seed, runs))
            methods.append(ReportMethod(data, method, repeats))
    return ReportInputs(folder, methods, bench)


def _create_repeat(folder: Path, seed: int, runs: Sequence[Run]) -> ReportRepeat:
    all_started = bool(runs) and len(runs) == count_folds(runs[0].config.data.protocol)
    return ReportRepeat(seed, runs, Repeat(folder, runs) if all_started else None)


def _open_started(folders: Iterable[Path]) -> list[Run]:
    return [Run.open(folder) for folder in folders if RunFolder(folder).begun]


def _open_readable(folders: Iterable[Path]) -> tuple[list[Run], list[str]]:
    """Runs, and why others cannot be opened, for example because a plugin is missing."""
    runs: list[Run] = []
    unreadable: list[str] = []
    for folder in folders:
        try:
            runs += _open_started([folder])
        except ValueError as error:
            unreadable.append(str(error))
    return runs, unreadable


def _group_by_method(runs: Sequence[Run]) -> list[ReportMethod]:
    """Group runs that differ only in their seeds; two runs of one seed are two methods."""
    by_config: dict[str, list[Run]] = {}
    for run in runs:
        by_config.setdefault(to_toml(to_tables(replace(run.config, seed=0))), []).append(run)
    groups: list[list[Run]] = []
    for group in by_config.values():
        seeds = Counter(run.config.seed for run in group)
        groups += [group] if max(seeds.values()) == 1 else [[run] for run in group]
    names = [_name_group(group) for group in groups]
    ambiguous = {name for name, count in Counter(names).items() if count > 1}
    methods = []
    for name, group in zip(names, groups, strict=True):
        repeats = [ReportRepeat(run.config.seed, [run], standalone=True) for run in group]
        method = group[0].folder.name if name in ambiguous else name
        methods.append(ReportMethod(name_data(group[0].config), method, repeats))
    return methods


def _name_group(group: Sequence[Run]) -> str:
    """Name of the first folder without its seed; "loss + miner" if it is called after both."""
    config, run_name = group[0].config, _name_run(group[0])
    name = re.sub(rf"(?<=.)[-_. ]?(seed)?[-_. ]?{config.seed}$", "", group[0].folder.name)
    return run_name if run_name.replace(" + ", "-") == name else name
