"""The content of a report whose figures are drawn."""

import pytest

from kinfold.report import collect_content
from tests.report.runs import feature_run


@pytest.fixture(scope="session")
def content(tmp_path_factory):
    return collect_content(feature_run(tmp_path_factory.mktemp("figures")).folder)
