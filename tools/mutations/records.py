"""What came of every trial, kept as it comes: a run that ends early is continued by the next one."""

import hashlib
import json
import threading
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.mutations.changes import Change
from tools.mutations.trial import TARGETS, Outcome, Passed


def digest(root: Path, *names: str) -> str:
    """Of all Python files under some paths."""
    hashed = hashlib.sha256()
    for name in names:
        path = root / name
        for file in [path] if path.is_file() else sorted(path.rglob("*.py")):
            hashed.update(f"{file.relative_to(root)}\n".encode() + file.read_bytes())
    return hashed.hexdigest()[:16]


class Records:
    """One JSON line per trial, in a folder that git ignores.

    A caught change stays caught while its module stays the same. A survivor is tried again when the tests of its
    package have changed. Files are read once: trials use a copy, whatever happens to the tree meanwhile.
    """

    def __init__(self, folder: Path, root: Path) -> None:
        self.folder, self.root = folder, root
        self._lock = threading.Lock()
        self._digests: dict[tuple[str, ...], str] = {}
        folder.mkdir(parents=True, exist_ok=True)

    def passed(self, package: str) -> tuple[Passed, tuple[str, ...]]:
        """What is known of the tests on the unchanged package, and the paths of those that have to run once more: test
        files that are new or have changed, or all of them where anything else has."""
        path = self.folder / f"{package}_unchanged.json"
        record = json.loads(path.read_text()) if path.exists() else {}
        if record.get("rest") != self._rest(package):
            return Passed({}), TARGETS[package].tests
        files = self._test_files(package)
        same = {file for file, file_digest in record["files"].items() if files.get(file) == file_digest}
        tests = {name: entry for name, entry in record["tests"].items() if not _in(name, {*record["files"]} - same)}
        return Passed(tests), tuple(file for file in files if file not in same)

    def keep_passed(self, package: str, passed: Passed) -> None:
        record = {"rest": self._rest(package), "files": self._test_files(package), "tests": passed.tests}
        (self.folder / f"{package}_unchanged.json").write_text(json.dumps(record))

    def outcome(self, package: str, change: Change) -> Outcome | None:
        """What is known of this change, None where it has to be tried."""
        tests, outcome = self._of_package(package), None
        for entry in self._entries(package):
            same = entry["change"] == [*change.key, change.line] and entry["module"] == self._of_module(change)
            if same and (entry["kind"] != "survived" or entry["tests"] == tests):
                outcome = Outcome(entry["kind"], entry["by"], entry["seconds"])
        return outcome

    def keep(self, package: str, change: Change, outcome: Outcome) -> None:
        entry = {
            "change": [*change.key, change.line],
            "module": self._of_module(change),
            "tests": self._of_package(package),
            "kind": outcome.kind,
            "by": outcome.by,
            "seconds": round(outcome.seconds, 1),
        }
        with self._lock, self._path(package).open("a") as file:
            file.write(json.dumps(entry) + "\n")

    def forget(self, package: str) -> None:
        self._path(package).unlink(missing_ok=True)

    def _entries(self, package: str) -> list[dict[str, Any]]:
        if not self._path(package).exists():
            return []
        # a line that was being written when the run was killed has no end
        return [json.loads(line) for line in self._path(package).read_text().splitlines(True) if line.endswith("}\n")]

    def _path(self, package: str) -> Path:
        return self.folder / f"{package}.jsonl"

    def _of_module(self, change: Change) -> str:
        return self._digest(f"src/{change.file}")

    def _of_package(self, package: str) -> str:
        return self._digest(*self._paths(package))

    def _digest(self, *names: str) -> str:
        if names not in self._digests:
            self._digests[names] = digest(self.root, *names)
        return self._digests[names]

    def _test_files(self, package: str) -> dict[str, str]:
        test_files = [
            file for file in self._files(package) if file.startswith("tests/") and Path(file).name.startswith("test_")
        ]
        return {file: self._digest(file) for file in test_files}

    def _rest(self, package: str) -> str:
        """Of the package itself and of what its tests share."""
        tests = self._test_files(package)
        return self._digest(*(file for file in self._files(package) if file not in tests))

    def _paths(self, package: str) -> list[str]:
        target = TARGETS[package]
        return [*dict.fromkeys((*(f"src/kinfold/{source}" for source in target.sources), *target.tests))]

    def _files(self, package: str) -> list[str]:
        paths = [self.root / name for name in self._paths(package)]
        files = [file for path in paths for file in ([path] if path.is_file() else sorted(path.rglob("*.py")))]
        return [*dict.fromkeys(str(file.relative_to(self.root)) for file in files)]


def _in(test: str, files: set[str]) -> bool:
    return test.split("::")[0] in files


@dataclass(frozen=True)
class Judgments:
    """What was decided by hand, each with its reason: changes that change nothing anybody could test, and survivors
    that are known."""

    equivalent: dict[tuple[str, str, str], str]
    survivors: dict[tuple[str, str, str], str]

    @staticmethod
    def read(path: Path) -> "Judgments":
        tables = tomllib.loads(path.read_text()) if path.exists() else {}
        if extra := set(tables) - {"equivalent", "survivor"}:
            raise ValueError(f"{path} has tables {sorted(extra)}; it may have [[equivalent]] and [[survivor]]")

        def table(name: str) -> dict[tuple[str, str, str], str]:
            for entry in tables.get(name, []):
                if set(entry) != {"file", "before", "after", "reason"} or not entry["reason"].strip():
                    raise ValueError(
                        f"{path}: an entry of [[{name}]] needs file, before, after and reason, got {entry}"
                    )
            return {(entry["file"], entry["before"], entry["after"]): entry["reason"] for entry in tables.get(name, [])}

        return Judgments(table("equivalent"), table("survivor"))
