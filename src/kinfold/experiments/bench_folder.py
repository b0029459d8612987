"""The folder of a bench: the runs, and a record of how each of them ended."""

import json
import os
import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kinfold.experiments.repeat import fold_folder
from kinfold.experiments.workers.tasks import Task, TaskResult
from kinfold.files.atomic import remove_unfinished, write_text
from kinfold.files.documents import read_result, read_toml, write_result
from kinfold.files.locks import lock_folder
from kinfold.files.paths import check_path, make_folder, open_append, read_bytes, remove_file

RECORD = {
    "kind": str,
    "error": (str, None),
    "details?": str,
    "seconds": float,
    "asked": {str: object},
}
_BENCH_FILES = re.compile(r"suite\.toml|results\.csv|results\.parquet|table\.md")
_RECORD_FILES = re.compile(r".+\.json")
_IDENTITY = re.compile(r"[0-9a-f]{32}")
_SEARCH = "search"


def is_trial(name: str) -> bool:
    """Tell whether a run of this name belongs to a search."""
    return name.startswith(f"{_SEARCH}/")


@dataclass(frozen=True)
class BenchRun:
    """One run of a bench.

    Attributes:
        data: Name of the data set in the suite.
        method: Name of the method in the suite.
        seed: Seed of the run.
        fold: Fold of the protocol.
        trial: Number of the trial, for a run of a search.
    """

    data: str
    method: str
    seed: int
    fold: int
    trial: int | None = None

    @property
    def repeat_name(self) -> str:
        """The folder that the folds of a repeat share, relative to the bench."""
        if self.trial is not None:
            return f"{_SEARCH}/{self.data}/{self.method}/trial-{self.trial}"
        return f"runs/{self.data}/{self.method}/seed-{self.seed}"

    @property
    def name(self) -> str:
        """The folder of the run, relative to the bench."""
        return fold_folder(Path(self.repeat_name), self.fold).as_posix()

    def __str__(self) -> str:
        repeat = f"seed {self.seed}" if self.trial is None else f"trial {self.trial}"
        return f"{self.data}, {self.method}, {repeat}, fold {self.fold}"


class BenchFolder:
    """Files of a bench.

    suite.toml; runs/ and search/ with the run folders; records/ with how each task ended; results.csv and table.md. The
    folder may come from somebody else, so no link inside of it is followed.

    Args:
        folder: The folder, which need not exist yet.
    """

    def __init__(self, folder: Path | str) -> None:
        self.path = Path(folder)
        self.suite = self.path / "suite.toml"
        self.journal = self.path / _SEARCH / "journal.log"
        self.log = self.path / "log.txt"
        self.results = self.path / "results.csv"
        self.parquet = self.path / "results.parquet"
        self.table = self.path / "table.md"

    @property
    def started(self) -> bool:
        """Whether a bench was started here."""
        return self.suite.is_file()

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the folder, so that no other bench runs in it."""
        advice = "choose a folder you may write to"
        if self.path.is_file():
            raise ValueError(f"{self.path} is a file: name a folder")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OSError(f"cannot write to {self.path}: {error.strerror}; {advice}") from error
        busy = f"another bench is running in {self.path}; wait for it, or choose another folder with --out"
        with lock_folder(self.path, busy, advice):
            self._check_kind()
            self._check_links()
            remove_unfinished(self.path, _BENCH_FILES, self.path)
            for folder, _, _ in os.walk(self.path / "records"):  # follows no links
                remove_unfinished(Path(folder), _RECORD_FILES, self.path)
            # no other process writes to the journal now: a lock on it was left by a killed bench
            self.journal.with_name(f"{self.journal.name}.lock").unlink(missing_ok=True)
            yield

    def write_suite(self, suite: str) -> None:
        """Write suite.toml."""
        write_text(self.suite, suite, self.path)

    def read_suite(self) -> dict[str, Any]:
        """Read the tables of suite.toml."""
        return read_toml(self.suite, self.path)

    def resolve_path(self, name: str) -> Path:
        """Return the path of a file or folder of the bench.

        Raises:
            ValueError: A link leads out of the bench.
        """
        check_path(self.path / name, self.path)
        return self.path / name

    @property
    def identity(self) -> str:
        """A random name of this bench in a storage that others share; it stays when the folder is moved."""
        path = self.resolve_path(f"{_SEARCH}/identity")
        if not path.is_file():
            make_folder(path.parent, self.path)
            write_text(path, uuid.uuid4().hex, self.path)
        identity = read_bytes(path, self.path).decode("ascii", "replace")
        if not _IDENTITY.fullmatch(identity):
            raise ValueError(f"{path} is damaged: it must hold 32 hexadecimal digits. Delete it to get a new one")
        return identity

    def read_record(self, name: str) -> dict[str, Any] | None:
        """Read how a task ended; None where it did not end, or where its folder was moved away."""
        path, scores = self._record_path(name), self.resolve_path(f"{name}/scores.json")
        check_path(path, self.path)
        if not path.is_file():
            return None
        record = read_result(path, RECORD, self.path)
        return record if record["error"] is not None or scores.is_file() else None

    def is_finished(self, name: str, tables: Mapping[str, Any]) -> bool:
        """Tell whether a task succeeded with these settings.

        Raises:
            ValueError: It succeeded with other settings.
        """
        record = self.read_record(name)
        if record is None or record["error"] is not None:
            return False
        if record["asked"] != _to_plain(tables):
            if record["kind"] == "test":
                return False  # a run of the repeat was trained again
            raise ValueError(
                f"{self.path / name} is finished, but with other settings than the suite has now. Choose another "
                "folder with --out, or move this run away to train it again"
            )
        return True

    def write_record(self, task: Task, result: TaskResult) -> None:
        """Write how a task ended."""
        path = self._record_path(task.name)
        make_folder(path.parent, self.path)
        record = {"kind": task.kind, "error": result.error, "details": result.details, "seconds": result.seconds}
        write_result(path, {**record, "asked": _to_plain(task.tables)}, self.path)

    def create_task(self, run: BenchRun, tables: Mapping[str, Any]) -> Task:
        """Create the task that trains a run."""
        return Task("train", run.name, self.resolve_path(run.name), tables)

    def create_test_task(self, run: BenchRun, tables: Mapping[str, Any]) -> Task:
        """Create the task that measures the held-out test classes, for the repeat of this run."""
        return Task("test", run.repeat_name, self.resolve_path(run.repeat_name), tables)

    def settings_changed(self, task: Task) -> bool:
        """Tell whether a run failed before with other settings."""
        record = self.read_record(task.name)
        return record is not None and record["asked"] != _to_plain(task.tables)

    def set_aside(self, task: Task) -> None:
        """Rename the folder of a failed run, because a run with other settings cannot continue from it."""
        check_path(task.folder, self.path)
        if task.folder.exists():
            number = 1
            while (aside := task.folder.with_name(f"{task.folder.name}.failed-{number}")).exists():
                number += 1
            task.folder.rename(aside)
        # last: from now on the folder belongs to the new settings
        remove_file(self._record_path(task.name), self.path)

    def _check_kind(self) -> None:
        """Raise ValueError where the folder holds something else than a bench."""
        expected = {self.path / ".lock", *self.path.glob(f".{self.suite.name}.*.tmp")}
        if not self.started and set(self.path.iterdir()) - expected:
            raise ValueError(f"{self.path} is not empty and not the folder of a bench; choose another with --out")

    def _check_links(self) -> None:
        """Raise ValueError where a file that is appended to, or a folder of runs, is a link."""
        for path in (self.path / "runs", self.path / "records", self.suite, self.results, self.parquet, self.table):
            check_path(path, self.path)
        for path in (self.log, self.journal):
            check_path(path, self.path)
            if path.exists():
                open_append(path, self.path).close()

    def _record_path(self, name: str) -> Path:
        return self.path / "records" / f"{name}.json"


def _to_plain(tables: Mapping[str, Any]) -> Any:
    """The tables as they are read back from a JSON file."""
    return json.loads(json.dumps(tables))
