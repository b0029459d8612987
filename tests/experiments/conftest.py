import pytest
import torch

from kinfold.experiments import Bench
from tests.experiments.faults import faults  # noqa: F401  (a fixture)
from tests.experiments.tiny import SEARCHED, run_inline, suite


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """As workers have it: a run in another process must round alike."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def bench(tmp_path_factory):
    """Two methods with a search of two trials and two repeats each, in four folds."""
    folder = tmp_path_factory.mktemp("searched")
    run_inline(suite(folder, **SEARCHED), folder / "bench")
    return Bench.open(folder / "bench")
