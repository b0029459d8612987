"""Recipes and changes are parsed into typed settings and written back unchanged."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kinfold
from kinfold import recipes
from kinfold.training.config.parsing import apply_changes, configure, read_tables, to_tables, to_toml
from kinfold.training.config.settings import NamedConfig, RunConfig


def test_a_resolved_configuration_is_written_and_read_unchanged():
    first = configure({"loss": {"name": "dro-topk", "k": 160}, "memory": {"size": 10}, "mixup": {"layers": ["input"]}})
    again = configure(tomllib.loads(to_toml(to_tables(first))))
    assert again == first


@pytest.mark.parametrize("name", kinfold.list("recipes"))
def test_every_recipe_of_the_package_is_valid(name):
    assert isinstance(configure(read_tables(recipes.find_recipe(name))), RunConfig)


MILESTONES = ["schedule.name=milestones", "schedule.at=[1, 2]"]


def test_changes_are_toml_values_and_strings_need_no_quotes():
    config = configure({}, ["loss.name=margin", "loss.beta=0.6", "data.name=cub", "seed=7", *MILESTONES])
    assert config.loss == NamedConfig("margin", {"beta": 0.6})
    assert (config.data.name, config.schedule.at, config.seed) == ("cub", [1, 2], 7)


def test_another_loss_drops_the_options_of_the_previous_one_in_any_order_of_changes():
    before = {"loss": {"name": "margin", "beta": 0.6}}
    assert apply_changes(before, ["loss.k=3", "loss.name=dro-topk"])["loss"] == {"name": "dro-topk", "k": 3}
    assert before == {"loss": {"name": "margin", "beta": 0.6}}


def test_none_removes_a_value_or_a_table():
    before = {"miner": {"name": "random"}, "evaluation": {"patience": 3}}
    config = configure(before, ["miner.name=none", "evaluation.patience=none"])
    assert config.miner is None
    assert config.evaluation.patience is None


@pytest.mark.parametrize("change", ["loss.k", "=3", "loss..k=3", "seed.x=1"])
def test_a_malformed_change_is_refused(change):
    with pytest.raises(ValueError, match=r"looks like loss\.k=160|is a value, not a table"):
        configure({"seed": 1}, [change])


def test_a_file_that_is_not_toml_is_named(tmp_path):
    path = tmp_path / "wrong.toml"
    path.write_text("loss = [")
    with pytest.raises(ValueError, match=r"wrong\.toml is not valid TOML"):
        read_tables(path)
    with pytest.raises(ValueError, match="there is no recipe"):
        recipes.find_recipe(str(tmp_path / "absent.toml"))
    with pytest.raises(ValueError, match="did you mean 'glyphs'"):
        recipes.find_recipe("glyps")


values = st.recursive(
    st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.text(min_size=1, max_size=8), st.dictionaries(st.text(min_size=1, max_size=8), values)))
def test_any_written_table_is_read_back(table):
    assert tomllib.loads(to_toml(table)) == table
