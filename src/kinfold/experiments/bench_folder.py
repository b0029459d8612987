"""The folder of a bench: where every cell lies, what was asked of it and how it ended."""

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
_OWN = re.compile(r"suite\.toml|results\.csv|results\.parquet|table\.md")
_RECORDS = re.compile(r".+\.json")
_IDENTITY = re.compile(r"[0-9a-f]{32}")
_TRIALS = "search"


def is_trial(name: str) -> bool:
    """Whether a cell of this name belongs to a search."""
    return name.startswith(f"{_TRIALS}/")


@dataclass(frozen=True)
class BenchRun:
    """One run: a method on a data set with a seed and a fold; of the search where it has a trial."""

    data: str
    method: str
    seed: int
    fold: int
    trial: int | None = None

    @property
    def repeat(self) -> str:
        """The folder that it shares with its other folds, below that of the bench."""
        if self.trial is not None:
            return f"{_TRIALS}/{self.data}/{self.method}/trial-{self.trial}"
        return f"runs/{self.data}/{self.method}/seed-{self.seed}"

    @property
    def name(self) -> str:
        return fold_folder(Path(self.repeat), self.fold).as_posix()

    def __str__(self) -> str:
        which = f"seed {self.seed}" if self.trial is None else f"trial {self.trial}"
        return f"{self.data}, {self.method}, {which}, fold {self.fold}"


class BenchFolder:
    """suite.toml; runs/ and search/ with the cells; records/ with how each ended; results.csv and table.md.

    The folder may come from somebody else: no link inside of it is followed.
    """

    def __init__(self, folder: Path | str) -> None:
        self.path = Path(folder)
        self.suite = self.path / "suite.toml"
        self.journal = self.path / "search" / "journal.log"
        self.log = self.path / "log.txt"
        self.results = self.path / "results.csv"
        self.parquet = self.path / "results.parquet"
        self.table = self.path / "table.md"

    @property
    def begun(self) -> bool:
        return self.suite.is_file()

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Nobody else may bench here meanwhile."""
        advice = "choose a folder you may write to"
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as wrong:
            raise OSError(f"cannot write to {self.path}: {wrong.strerror}; {advice}") from wrong
        busy = f"another bench is running in {self.path}; wait for it, or choose another folder with --out"
        with lock_folder(self.path, busy, advice):
            self._check_kind()
            self._check_links()
            remove_unfinished(self.path, _OWN, self.path)
            for folder, _, _ in os.walk(self.path / "records"):  # which follows no links
                remove_unfinished(Path(folder), _RECORDS, self.path)
            # nobody else writes to it now: a lock is one that a killed bench had, and would be waited for
            self.journal.with_name(f"{self.journal.name}.lock").unlink(missing_ok=True)
            yield

    def begin(self, suite: str) -> None:
        """Write down what is compared here from now on."""
        write_text(self.suite, suite, self.path)

    def read_suite(self) -> dict[str, Any]:
        """The tables of suite.toml, as they stand."""
        return read_toml(self.suite, self.path)

    def inside(self, name: str) -> Path:
        """A file or folder of the bench by its name; ValueError where a link leads out of it."""
        check_path(self.path / name, self.path)
        return self.path / name

    @property
    def identity(self) -> str:
        """What tells this bench from others that search on the same storage; it stays when the folder is moved."""
        path = self.inside("search/identity")
        if not path.is_file():
            make_folder(path.parent, self.path)
            write_text(path, uuid.uuid4().hex, self.path)
        identity = read_bytes(path, self.path).decode("ascii", "replace")
        if not _IDENTITY.fullmatch(identity):
            raise ValueError(f"{path} is damaged: it must hold 32 hexadecimal digits. Delete it to get a new one")
        return identity

    def record(self, name: str) -> dict[str, Any] | None:
        """How a task ended; None where it did not, or where what it made was moved away."""
        path, scores = self._record(name), self.inside(f"{name}/scores.json")
        check_path(path, self.path)
        if not path.is_file():
            return None
        found = read_result(path, RECORD, self.path)
        return found if found["error"] is not None or scores.is_file() else None

    def done(self, name: str, asked: Mapping[str, Any]) -> bool:
        """Whether a task is through, with the settings that are asked for; ValueError where it had others."""
        record = self.record(name)
        if record is None or record["error"] is not None:
            return False
        if record["asked"] != _plain(asked):
            if record["kind"] == "test":
                return False  # its cells were made anew
            raise ValueError(
                f"{self.path / name} is finished, but with other settings than the suite has now. Choose another "
                "folder with --out, or move this cell away to have it made anew"
            )
        return True

    def write(self, task: Task, outcome: TaskResult) -> None:
        path = self._record(task.name)
        make_folder(path.parent, self.path)
        about = {"kind": task.kind, "error": outcome.error, "details": outcome.details, "seconds": outcome.seconds}
        write_result(path, {**about, "asked": _plain(task.tables)}, self.path)

    def task(self, cell: BenchRun, tables: Mapping[str, Any]) -> Task:
        return Task("train", cell.name, self.inside(cell.name), tables)

    def test_task(self, cell: BenchRun, tables: Mapping[str, Any]) -> Task:
        """Opens the test classes for the repeat that this cell belongs to."""
        return Task("test", cell.repeat, self.inside(cell.repeat), tables)

    def mended(self, task: Task) -> bool:
        """Whether a cell failed before, with other settings than it has now."""
        record = self.record(task.name)
        return record is not None and record["asked"] != _plain(task.tables)

    def set_aside(self, task: Task) -> None:
        """Keep what a failed cell left behind out of the way of a new attempt that could not go on with it."""
        check_path(task.folder, self.path)
        if task.folder.exists():
            number = 1
            while (aside := task.folder.with_name(f"{task.folder.name}.failed-{number}")).exists():
                number += 1
            task.folder.rename(aside)
        # last: what is in the folder from now on belongs to the new settings
        remove_file(self._record(task.name), self.path)

    def _check_kind(self) -> None:
        """ValueError where the folder holds something else than a bench."""
        own = {self.path / ".lock", *self.path.glob(f".{self.suite.name}.*.tmp")}
        if not self.begun and set(self.path.iterdir()) - own:
            raise ValueError(f"{self.path} is not empty and not the folder of a bench; choose another with --out")

    def _check_links(self) -> None:
        """ValueError where a file that is changed in its place, or a folder of cells, is a link."""
        for path in (self.path / "runs", self.path / "records", self.suite, self.results, self.parquet, self.table):
            check_path(path, self.path)
        for path in (self.log, self.journal):
            check_path(path, self.path)
            if path.exists():
                open_append(path, self.path).close()

    def _record(self, name: str) -> Path:
        return self.path / "records" / f"{name}.json"


def _plain(tables: Mapping[str, Any]) -> Any:
    """As it is read back from a file."""
    return json.loads(json.dumps(tables))
