"""Entries of a board: one method on one data set of a bench, checked against the files that it comes from."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kinfold.experiments.bench import Bench
from kinfold.experiments.bench_folder import BenchRun
from kinfold.experiments.repeat import Repeat
from kinfold.files.checksums import compute_sha256, digest_parts
from kinfold.files.paths import read_bytes


@dataclass(frozen=True)
class BoardEntry:
    """The results of one method on one data set.

    Attributes:
        bench: Name of the folder of the bench.
        data: Name of the data set in the suite.
        method: Name of the method in the suite.
        backbone: Name of the backbone; "features" for stored features.
        protocol: How classes were divided.
        metric: The metric of the suite.
        result: "separated" or "concatenated".
        values: Seed -> score on the test classes.
        starts: Seed -> score of the same model before its first step.
        seconds: Mean time of one repeat, all folds and the measurement of the test classes, without the search.
        trials: Trials of its search.
        is_untrained: Whether all runs of a repeat selected their initial weights.
        is_inflated: Whether a run was selected on the test classes.
        tables: The recipe of its runs, with the values that the search chose, without seed and fold.
        data_fingerprint: Fingerprint of the data and of the folds.
        codes: Digests of the code that the runs were made with; more than one if the package changed in between.
        files: Path of each result file inside the bench -> its sha256.
    """

    bench: str
    data: str
    method: str
    backbone: str
    protocol: str
    metric: str
    result: str
    values: Mapping[int, float]
    starts: Mapping[int, float]
    seconds: float
    trials: int
    is_untrained: bool
    is_inflated: bool
    tables: Mapping[str, Any]
    data_fingerprint: str
    codes: tuple[str, ...]
    files: Mapping[str, str]

    @property
    def name(self) -> str:
        """The name by which the entry is replayed, BENCH/DATA/METHOD."""
        return f"{self.bench}/{self.data}/{self.method}"

    @property
    def digest(self) -> str:
        """One sha256 of all result files."""
        return compute_sha256("\n".join(f"{path} {sha256}" for path, sha256 in sorted(self.files.items())).encode())


def read_entries(bench: Bench) -> list[BoardEntry]:
    """Read the entries of a bench, and check that its files belong together.

    Args:
        bench: The bench. Methods without a tested repeat are left out.

    Returns:
        One entry for each method and data set, in the order of the suite.

    Raises:
        ValueError: A result file was changed; the settings, the data or the runs of a repeat are not those that its
            scores were measured with; or an earlier version of kinfold wrote the files, without checksums.
    """
    result = bench.results[-1]
    entries = []
    for data in bench.suite.datasets:
        values = bench.values(data, result, bench.suite.metric)
        starts = bench.values(data, result, bench.suite.metric, "start")
        untrained = bench.list_untrained(data)
        for method in bench.suite.methods:
            if values[method]:
                entries.append(
                    _read_entry(bench, data, method, result, values[method], starts[method], method in untrained)
                )
    return entries


def _read_entry(
    bench: Bench,
    data: str,
    method: str,
    result: str,
    values: Mapping[int, float],
    starts: Mapping[int, float],
    is_untrained: bool,
) -> BoardEntry:
    suite, folder = bench.suite, bench.bench_folder
    budget = bench.searches.get((data, method))
    chosen = budget.chosen if budget else {}
    tables = suite.build_run_tables(data, method, suite.seeds[0], 0, chosen)
    files: dict[str, str] = {}
    fingerprints: set[str] = set()  # of the data of all folds, one for each seed
    codes: set[str] = set()
    backbone, seconds, is_inflated = "", 0.0, False
    for seed in values:
        runs = [BenchRun(data, method, seed, fold) for fold in range(suite.folds)]
        for run in runs:
            # raises where a finished run has other settings than the suite
            folder.is_finished(run.name, suite.build_run_tables(data, method, seed, run.fold, chosen))
        repeat = Repeat.open(folder.resolve_path(runs[0].repeat_name))
        scores = repeat.scores
        _check_runs(repeat, scores)
        fold_fingerprints = []
        for run, opened in zip(runs, repeat.runs, strict=True):
            provenance = _check_provenance(opened.run_folder.path, opened.run_folder.read_provenance(), opened.scores)
            fold_fingerprints.append(provenance["data"])
            codes.add(provenance["code"])
            backbone = opened.config.model.backbone
            files[f"{run.name}/scores.json"] = compute_sha256(read_bytes(opened.run_folder.scores, folder.path))
        fingerprints.add(digest_parts(fold_fingerprints))
        files[f"{runs[0].repeat_name}/scores.json"] = compute_sha256(
            read_bytes(repeat.folder / "scores.json", folder.path)
        )
        is_inflated = is_inflated or scores["inflated"]
        records = [folder.read_record(name) for name in (*(run.name for run in runs), runs[0].repeat_name)]
        seconds += sum(record["seconds"] for record in records if record is not None)
    if len(fingerprints) > 1:
        raise ValueError(
            f"the runs of {method} on {data} in {folder.path} were trained on different data; train them again in a "
            "new folder"
        )
    return BoardEntry(
        bench=folder.path.resolve().name,
        data=data,
        method=method,
        backbone=backbone,
        protocol=suite.protocol,
        metric=suite.metric,
        result=result,
        values=dict(values),
        starts=dict(starts),
        seconds=seconds / len(values),
        trials=budget.completed if budget else 0,
        is_untrained=is_untrained,
        is_inflated=is_inflated,
        tables={key: value for key, value in tables.items() if key != "seed"},
        data_fingerprint=fingerprints.pop(),
        codes=tuple(sorted(codes)),
        files=files,
    )


def _check_runs(repeat: Repeat, scores: Mapping[str, Any]) -> None:
    recorded = scores.get("runs")
    if recorded is None:
        raise ValueError(
            f"the scores of {repeat.folder} have no checksums of their runs: an earlier version of kinfold wrote them. "
            f"Measure them again with kinfold.experiments.Repeat.open({str(repeat.folder)!r}).test()"
        )
    if recorded != repeat.compute_run_checksums():
        raise ValueError(
            f"the runs in {repeat.folder} changed after their test scores were measured. Continue the bench with "
            "`kinfold bench --resume`, which measures them again"
        )


def _check_provenance(path: Path, current: Mapping[str, Any], scores: Mapping[str, Any]) -> dict[str, Any]:
    recorded = scores.get("provenance")
    if recorded is None or None in recorded.values():
        raise ValueError(
            f"the scores of {path} do not say which data, code and configuration they belong to: an earlier version of "
            "kinfold wrote them. Train the run again in a new folder"
        )
    for part in ("configuration", "data", "code"):
        if recorded[part] != current[part]:
            raise ValueError(
                f"the {part} in {path} is not what its scores were measured with; restore it, or train again"
            )
    return dict(recorded)
