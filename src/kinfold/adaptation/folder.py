"""What an adaptation stores beside the run: its plan, the measurements so far, and its result."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kinfold.files.atomic import remove_unfinished
from kinfold.files.documents import read_result, write_result
from kinfold.files.locks import lock_folder
from kinfold.files.paths import check_path, make_folder

NAME = "adaptation"  # the subfolder of the run folder
_PLAN = {"data": str, "plan": {str: object}, "settings": {str: object}}
_RECORD = {"value": object, "seconds": float}
_UNSAFE = re.compile(r"[^a-z0-9.=+-]+")


class AdaptationFolder:
    """Reads and writes the files of an adaptation, in the folder `adaptation` of its run.

    | file | content |
    |---|---|
    | plan.json | the plan, the settings, and the fingerprint of the data |
    | records/ | one file for each measurement that is finished |
    | result.json | the table and the verdict, once the adaptation is finished |

    Args:
        run: The folder of the run, which need not exist.
    """

    def __init__(self, run: Path | str) -> None:
        self.run = Path(run)
        self.path = self.run / NAME
        self.plan = self.path / "plan.json"
        self.records = self.path / "records"
        self.result = self.path / "result.json"

    @property
    def begun(self) -> bool:
        """Whether an adaptation was planned here."""
        return self.plan.is_file()

    @property
    def finished(self) -> bool:
        """Whether the adaptation is finished."""
        return self.result.is_file()

    def prepare(self) -> None:
        """Create the folder.

        Raises:
            ValueError: There is something else in it.
        """
        if self.run.exists() and not self.run.is_dir():
            raise ValueError(f"{self.run} is a file: name a folder")
        if not self.begun and self.run.exists() and {*self.run.iterdir()} - {self.path, self.run / ".lock"}:
            raise ValueError(f"{self.run} is not empty, and holds no adaptation: choose another folder")
        self.run.mkdir(parents=True, exist_ok=True)
        make_folder(self.records, self.run)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes from adapting here."""
        occupied = f"another process is adapting in {self.run}; wait for it, or choose another folder"
        with lock_folder(self.path, occupied, "check its permissions, then try again"):
            for path in (self.plan, self.records, self.result):
                check_path(path, self.run)
            remove_unfinished(self.path, re.compile(r"(plan|result)\.json"), self.run)
            remove_unfinished(self.records, re.compile(r".*\.json"), self.run)
            yield

    def write_plan(self, table: dict[str, Any]) -> None:
        """Write the plan."""
        write_result(self.plan, table, self.run)

    def read_plan(self) -> dict[str, Any]:
        """Return what `write_plan` wrote."""
        return read_result(self.plan, _PLAN, self.run)

    def remember(self, key: str, compute: Callable[[], Any], clock: Callable[[], float]) -> tuple[Any, float]:
        """Return the value of a measurement and the seconds that it took; computed once, then read from its file.

        Args:
            key: Name of the measurement.
            compute: Returns the value, of JSON types.
            clock: Returns seconds.
        """
        path = self.records / f"{_UNSAFE.sub('-', key.lower())}.json"
        check_path(path, self.run)
        if not path.is_file():
            start = clock()
            value = compute()
            write_result(path, {"value": value, "seconds": clock() - start}, self.run)
        record = read_result(path, _RECORD, self.run)
        return record["value"], record["seconds"]

    def write_final(self, table: dict[str, Any]) -> None:
        """Write the result, which finishes the adaptation."""
        write_result(self.result, table, self.run)

    def read_final(self) -> dict[str, Any]:
        """Return what `write_final` wrote."""
        return read_result(self.result, {"steps": [object], "verdict": str, "winner": str}, self.run)
