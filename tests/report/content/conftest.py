"""Runs and reports that several tests look at."""

import pytest

from kinfold.report import collect_content
from tests.experiments.tiny import TWELVE_RUNS, run_inline, suite
from tests.report.runs import feature_run


@pytest.fixture(scope="session")
def bench(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bench")
    run_inline(suite(folder, **{**TWELVE_RUNS, "seeds": [0, 1, 2]}), folder / "tiny")
    return folder / "tiny"


@pytest.fixture(scope="session")
def of_bench(bench):
    return collect_content(bench)


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    return feature_run(tmp_path_factory.mktemp("finished"))


@pytest.fixture(scope="session")
def folded(tmp_path_factory):
    """One repeat of a protocol of four folds."""
    folder = tmp_path_factory.mktemp("folded")
    run_inline(suite(folder, protocol="reality-check", base={"training": {"steps": 2}}), folder / "tiny")
    return folder / "tiny"
