"""A pytest plugin for the trials of mutations: which tests run, in which order, and what came of it.

MUTATION_TESTS names a file of tests, each with the seconds of processor time it may take: those alone run, in that
order, and one that takes longer ends the process by SIGPROF. MUTATION_RESULT names the file that gets the first
failure, or, where no tests were chosen, how long each test took and which functions of MUTATION_SOURCES it entered.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

IMPORTING = 120.0  # seconds
ROOT = Path.cwd()
SOURCES = tuple(
    str(ROOT / "src" / source) + ("" if source.endswith(".py") else os.sep)
    for source in os.environ.get("MUTATION_SOURCES", "kinfold").split(os.pathsep)
)
RESULT = Path(os.environ["MUTATION_RESULT"])

measured: dict[str, dict[str, object]] = {}
limits: dict[str, float] = {}
if "MUTATION_TESTS" in os.environ:
    limits = dict(json.loads(Path(os.environ["MUTATION_TESTS"]).read_text()))
    # time of the processor: on a busy machine everything takes long
    signal.setitimer(signal.ITIMER_PROF, IMPORTING)


def pytest_sessionstart() -> None:
    import kinfold

    assert str(kinfold.__file__).startswith(str(ROOT)), f"{kinfold.__file__} is not the copy in {ROOT}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if limits:
        by_name = {item.nodeid: item for item in items}
        items[:] = [by_name[name] for name in limits if name in by_name]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    if limits:
        signal.setitimer(signal.ITIMER_PROF, limits[item.nodeid])
        return (yield)
    entered: set[tuple[str, int]] = set()

    def look(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(SOURCES):
            entered.add((frame.f_code.co_filename, frame.f_code.co_firstlineno))

    began = time.process_time()
    sys.setprofile(look)
    try:
        return (yield)
    finally:
        sys.setprofile(None)
        functions = sorted((str(Path(file).relative_to(ROOT / "src")), line) for file, line in entered)
        measured[item.nodeid] = {"seconds": time.process_time() - began, "functions": functions}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed and not RESULT.exists():
        RESULT.write_text(json.dumps({"failed": report.nodeid}))


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed and not RESULT.exists():
        RESULT.write_text(json.dumps({"failed": f"{report.nodeid} (cannot be imported)"}))


def pytest_sessionfinish() -> None:
    if measured and not RESULT.exists():
        RESULT.write_text(json.dumps({"tests": measured}))
