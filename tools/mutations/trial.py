"""One change, tried: a copy of the package with the changed line in it, and the tests that could notice."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tools.mutations.changes import Change


@dataclass(frozen=True)
class Target:
    """What is changed, below src/kinfold, and the tests that could notice: paths, and what their names match."""

    sources: tuple[str, ...]
    tests: tuple[str, ...]
    keyword: str = ""


# the tests of other packages would notice some changes too, but take longer
TARGETS = {
    # the robust losses go through all that every loss goes through
    "losses": Target(
        ("losses",),
        ("src/kinfold/losses", "tests/losses", "tests/contract/test_losses.py", "tests/contract/test_compile.py"),
        "not dro-",
    ),
    "dro": Target(("dro",), ("src/kinfold/dro", "tests/dro", "tests/contract/test_losses.py"), "dro"),
    "miners": Target(("miners",), ("src/kinfold/miners", "tests/miners", "tests/contract/test_miners.py")),
    # two processes wait for each other, on a busy machine for longer than they are allowed
    "samplers": Target(("samplers",), ("src/kinfold/samplers", "tests/samplers"), "not two_processes"),
    "metrics": Target(("metrics",), ("src/kinfold/metrics", "tests/metrics", "tests/cli/test_evaluate.py")),
    "learner": Target(
        ("learner.py", "linear_estimators.py"),
        ("src/kinfold/learner.py", "src/kinfold/linear_estimators.py", "tests/learner"),
    ),
    "statistics": Target(
        ("experiments/statistics.py", "experiments/rank_test.py", "experiments/groups.py", "experiments/tables.py"),
        (
            "src/kinfold/experiments/statistics.py",
            "tests/experiments/test_statistics.py",
            "tests/experiments/test_rank_test.py",
            "tests/experiments/test_groups.py",
            "tests/experiments/test_tables.py",
        ),
    ),
    "gallery": Target(("gallery",), ("src/kinfold/gallery", "tests/gallery")),
    "calibration": Target(("calibration",), ("src/kinfold/calibration", "tests/calibration")),
}
COPIED = ("src", "tests", "benchmarks", "pyproject.toml")
ARGUMENTS = ("-x", "-q", "-p", "no:cacheprovider", "-p", "chosen", "-m", "not slow", "--tb=no")
# a test may take ten times as long as it did, and so much more, in seconds of processor time
LONGER, LEAST_SECONDS = 10.0, 20.0
LONG = 1.0  # seconds
WAIT = 3600.0  # for a run that does nothing at all
TOO_LONG = -signal.SIGPROF
CRASHES = (-signal.SIGSEGV, -signal.SIGABRT, -signal.SIGFPE, -signal.SIGBUS)


@dataclass(frozen=True)
class Passed:
    """The tests of a package on the unchanged package: seconds and functions entered (file, first line) of each."""

    tests: dict[str, dict[str, object]]

    @property
    def seconds(self) -> float:
        return sum(float(str(entry["seconds"])) for entry in self.tests.values())

    def concerning(self, change: Change) -> dict[str, float]:
        """The tests that entered the changed function, those of its name first, quick ones before others, long ones at
        the end, and how long each may take.

        All tests for a line outside of functions, or where none entered it: it may have run before, or elsewhere.
        A test that enters no function at all (it reads signatures, or works in another process) concerns every change.
        """
        inside = [name for name in self.tests if [change.file, change.function] in self._functions(name)]
        names = [*inside, *(name for name in self.tests if not self._functions(name))] if inside else [*self.tests]
        stem = Path(change.file).stem
        spellings = {stem, stem.replace("_", "-")}

        def distance(name: str) -> tuple[bool, bool, bool, float]:
            same_file = any(file == change.file for file, _ in self._functions(name))
            seconds = float(str(self.tests[name]["seconds"]))
            return seconds > LONG, not any(spelling in name for spelling in spellings), not same_file, seconds

        chosen = sorted(names, key=distance)
        return {name: LEAST_SECONDS + LONGER * float(str(self.tests[name]["seconds"])) for name in chosen}

    def _functions(self, name: str) -> list[list[object]]:
        functions = self.tests[name]["functions"]
        assert isinstance(functions, list)
        return functions


@dataclass(frozen=True)
class Outcome:
    """kind: "caught", "timed out" or "survived"; by: the test that failed first."""

    kind: str
    by: str
    seconds: float


class Copy:
    """A copy of package and tests in a temporary folder, and a process that runs tests there; the working tree is never
    touched."""

    def __init__(self, root: Path) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="kinfold-mutation-"))
        self.tree = self.folder / "tree"
        for name in COPIED:
            source = root / name
            if source.is_dir():
                shutil.copytree(source, self.tree / name)  # with what is compiled: times and sizes stay the same
            else:
                shutil.copy(source, self.tree / name)
        self._nursery = subprocess.Popen(
            [sys.executable, "-W", "ignore", str(Path(__file__).with_name("nursery.py"))],
            env={**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def close(self) -> None:
        self._nursery.terminate()
        self._nursery.communicate()
        shutil.rmtree(self.folder, ignore_errors=True)

    def unchanged(self, package: str, paths: tuple[str, ...]) -> Passed:
        """The tests of some paths, which have to pass."""
        code, result = self._run(package, paths, None)
        if code == 5:  # nothing for this package in them
            return Passed({})
        if code != 0 or "tests" not in result:
            raise RuntimeError(
                f"the tests of {package} fail without any change: {result.get('failed', f'exit code {code}')}"
            )
        tests = result["tests"]
        assert isinstance(tests, dict)
        return Passed(tests)

    def changed(self, package: str, change: Change, passed: Passed) -> Outcome:
        """Whether the tests of the package notice the change."""
        names = passed.concerning(change)
        files = dict.fromkeys(name.split("::")[0] for name in names)
        path = self.tree / "src" / change.file
        original = path.read_text()
        path.write_text(change.applied(original))
        # a changed line may have the length and the second of the line before: nothing compiled is taken or kept
        for compiled in path.parent.glob(f"__pycache__/{path.stem}.*"):
            compiled.unlink()
        began = time.perf_counter()
        try:
            code, result = self._run(package, tuple(files), names)
        finally:
            path.write_text(original)
        seconds = time.perf_counter() - began
        if code is None or code == TOO_LONG:
            return Outcome("timed out", "", seconds)
        if code == 0:
            return Outcome("survived", "", seconds)
        by = "the interpreter, which crashed" if code in CRASHES else result.get("failed")
        if not by:  # whatever went wrong, no test noticed the change
            raise RuntimeError(f"the tests of {change.file} could not be run to an end: exit code {code}")
        return Outcome("caught", str(by), seconds)

    def _run(
        self, package: str, paths: tuple[str, ...], limits: dict[str, float] | None
    ) -> tuple[int | None, dict[str, object]]:
        """The exit code, None where nothing happened for too long, and what the plugin wrote."""
        result, chosen = self.folder / "result.json", self.folder / "tests.json"
        result.unlink(missing_ok=True)
        environment = {
            "PYTHONPATH": os.pathsep.join(map(str, (self.tree / "src", Path(__file__).parent))),
            "MUTATION_SOURCES": os.pathsep.join(f"kinfold/{source}" for source in TARGETS[package].sources),
            "MUTATION_RESULT": str(result),
        }
        if limits is not None:
            chosen.write_text(json.dumps([*limits.items()]))
            environment |= {"MUTATION_TESTS": str(chosen), "PYTHONDONTWRITEBYTECODE": "1"}
        run = {
            "arguments": [*ARGUMENTS, "-k", TARGETS[package].keyword, *paths],
            "environment": environment,
            "folder": str(self.tree),
            "seconds": WAIT,
        }
        assert self._nursery.stdin is not None
        assert self._nursery.stdout is not None
        self._nursery.stdin.write(json.dumps(run) + "\n")
        self._nursery.stdin.flush()
        answer = self._nursery.stdout.readline()
        if not answer:
            raise RuntimeError("the process that runs the tests has ended")
        return json.loads(answer), json.loads(result.read_text()) if result.exists() else {}
