"""The suites behind docs/results.md can be read, and hold what the page says they hold."""

from pathlib import Path

import pytest

import kinfold
from kinfold.experiments import read_suite
from kinfold.experiments.schedule import is_searched
from kinfold.registry import plugins

FOLDER = Path(__file__).parents[2] / "benchmarks" / "suites"


@pytest.fixture
def quarter_glyphs(own_names):
    """The data set that `--plugin` adds."""
    plugins.load(str(FOLDER.parent / "quarter_glyphs.py"))


@pytest.mark.usefixtures("quarter_glyphs")
@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.toml")), ids=lambda path: path.stem)
def test_every_method_of_our_suites_has_a_valid_recipe(path):
    suite = read_suite(path)  # checks every method on every data set
    assert suite.name.replace("-", "_") == path.stem
    for method in suite.methods:
        assert suite.build_config(suite.datasets[0], method).data.test == "withheld"


def test_every_loss_is_compared_on_glyphs():
    suite = read_suite(FOLDER / "glyphs.toml")
    assert suite.methods == kinfold.list("losses")
    assert [suite.build_config("glyphs", name).loss.name for name in suite.methods] == suite.methods
    assert len(suite.seeds) == 3


def test_the_reality_check_on_features_searches_two_numbers_of_every_method_that_trains():
    suite = read_suite(FOLDER / "cub_features.toml")
    assert (suite.protocol, suite.trials, len(suite.seeds)) == ("reality-check", 8, 5)
    trained = [name for name in suite.methods if is_searched(suite, "cub", name)]
    assert len(trained) == 12
    assert {*suite.methods} - {*trained} == {"untrained"}
    assert {len(suite.search_space("cub", name)) for name in trained} == {2}
