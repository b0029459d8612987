import pytest

from kinfold.papers.small_scale import SmallScale
from tests.experiments.conftest import one_thread  # noqa: F401  (a fixture)
from tests.papers.features import feature_file


@pytest.fixture(scope="session")
def features(tmp_path_factory):
    return feature_file(tmp_path_factory.mktemp("features"))


@pytest.fixture(scope="session")
def small(features):
    return SmallScale(2, features)
