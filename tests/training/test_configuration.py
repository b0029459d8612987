"""Recipes become typed objects; whatever means nothing is an error that names the nearest thing that does."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kinfold
from kinfold import recipes
from kinfold.training.config.defaults import RAW_LENGTH
from kinfold.training.config.parsing import apply_changes, configure, merge_tables, read_tables, to_tables, to_toml
from kinfold.training.config.settings import NamedConfig, RunConfig, ScheduleConfig
from kinfold.training.loop.optimizers import compute_lr_factor


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


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"optimiser": {}}, "unknown key 'optimiser'.*did you mean 'optimizer'"),
        ({"optimizer": {"rate": 1}}, r"unknown key 'rate' in \[optimizer\].*lr"),
        ({"training": {"step": 5}}, "did you mean 'steps'"),
        ({"loss": {"name": "tripplet"}}, "did you mean 'triplet'"),
        ({"miner": {"name": "semi-hard"}}, "did you mean 'semihard'"),
        ({"loss": {}}, "needs a name"),
        ({"loss": "margin"}, "must be a table"),
        ({"training": {"steps": 5.5}}, "training.steps must be an integer"),
        ({"training": {"steps": True}}, "training.steps must be an integer"),
        ({"training": {"steps": -1}}, "training.steps must be at least 0, got -1"),
        ({"training": {}}, "steps or epochs"),
        ({"training": {"steps": 1, "epochs": 1}}, "and not both"),
        ({"optimizer": {"lr": "fast"}}, "optimizer.lr must be a number"),
        ({"optimizer": {"lr": -1.0}}, "optimizer.lr must be at least 0, got -1.0"),
        ({"optimizer": {"name": "adm"}}, "did you mean 'adam'"),
        ({"evaluation": {"selection": "test"}}, "did you mean 'test-oracle'"),
        ({"evaluation": {"metric": "nmi"}}, "add it there"),
        ({"evaluation": {"metrics": "map@r"}}, "must be a list"),
        ({"data": {"validation": 1.5}}, r"data.validation must be in \[0, 1\), got 1.5"),
        ({"mixup": {}, "training": {"steps": 1, "micro_batch": 4}}, "leave one out"),
        ({"memory": {}}, "needs size"),
    ],
)
def test_an_invalid_configuration_gets_a_helpful_error(tables, message):
    with pytest.raises(ValueError, match=message):
        configure(tables)


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


@given(
    st.sampled_from(["constant", "cosine", "linear", "step", "milestones"]),
    st.integers(0, 20),
    st.integers(1, 200),
    st.floats(0, 1),
)
def test_schedules_rise_during_warmup_and_never_afterward(name, warmup, steps, floor):
    schedule = ScheduleConfig(name, warmup=warmup, every=7, at=[30, 60], factor=0.5, floor=floor)
    rates = [compute_lr_factor(schedule, step, warmup + steps) for step in range(warmup + steps)]
    assert all(0 <= rate <= 1 for rate in rates)
    assert rates[:warmup] == sorted(rates[:warmup])
    assert rates[warmup:] == sorted(rates[warmup:], reverse=True)
    assert rates[warmup] == (1.0 if name != "milestones" or warmup < 30 else rates[warmup])


def test_schedules_follow_their_formulas():
    assert [compute_lr_factor(ScheduleConfig("step", every=2), step, 6) for step in range(5)] == [
        1,
        1,
        0.1,
        0.1,
        0.1**2,
    ]
    assert [compute_lr_factor(ScheduleConfig("milestones", at=[1, 3]), step, 6) for step in range(4)] == [
        1,
        0.1,
        0.1,
        0.1**2,
    ]
    assert [compute_lr_factor(ScheduleConfig("linear", floor=0.5), step, 4) for step in range(5)] == [
        1,
        0.875,
        0.75,
        0.625,
        0.5,
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("schedule.factor=0.5", "schedule.factor=0.5 belongs to step and milestones, and constant would ignore it"),
        ("schedule.floor=0.1", "schedule.floor=0.1 belongs to cosine and linear"),
        ("schedule.every=7", "schedule.every=7 belongs to step"),
        ("schedule.at=[3]", r"schedule.at=\[3\] belongs to milestones"),
        ("optimizer.momentum=0.5", "optimizer.momentum=0.5 belongs to sgd and rmsprop, and adam would ignore it"),
    ],
)
def test_a_setting_that_would_be_ignored_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        configure({}, [change])


def test_auto_resolves_to_the_defaults_of_the_loss():
    tables = {
        "model": {"standardize": True, "init_length": "auto"},
        "miner": {"name": "auto"},
        "optimizer": {"lr": "auto"},
    }

    def auto(*changes, **layers):
        config = configure(merge_tables(tables, layers), changes)
        miner = None if config.miner is None else config.miner.name
        return miner, config.optimizer.lr, config.model.init_length

    assert auto() == (None, 5e-4, 1.0)  # the default loss
    assert auto("loss.name=margin") == auto(loss={"name": "contrastive"}) == ("distance-weighted", 5e-4, 1.0)
    assert auto("loss.name=lifted") == ("multi-similarity", 5e-4, 1.0)
    assert auto("loss.name=lifted", "loss.variant=oh-song") == (None, 5e-4, 1.0)
    assert auto("loss.name=quadruplet") == (None, 1e-4, 1.0)
    assert auto("loss.name=n-pair") == (None, 5e-4, RAW_LENGTH)
    assert auto("loss.name=triplet", "miner.name=semihard", "optimizer.lr=0.1") == ("semihard", 0.1, 1.0)
    assert auto("loss.name=margin", "miner.name=none") == (None, 5e-4, 1.0)
    assert configure(tables, ["loss.name=margin", "miner.switch=0.2"]).miner.options == {"switch": 0.2}
    with pytest.raises(ValueError, match=r"\[miner\] has switch, and the loss 'triplet' has no default miner"):
        configure(tables, ["loss.name=triplet", "miner.switch=0.2"])
    with pytest.raises(ValueError, match=r"a rate for standardized features: set model\.standardize"):
        configure({"optimizer": {"lr": "auto"}})


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ("evaluation.patience_after=1.5", "evaluation.patience_after must be at most 1, got 1.5"),
        ("evaluation.patience_after=-0.1", "evaluation.patience_after must be at least 0, got -0.1"),
        ("evaluation.patience_after=nan", "got nan"),
        ("model.init_length=0", "model.init_length must be greater than 0, got 0"),
        ("optimizer.proxy_factor=-1", "optimizer.proxy_factor must be at least 0, got -1"),
    ],
)
def test_shares_lengths_and_factors_out_of_range_are_refused(change, match):
    with pytest.raises(ValueError, match=match):
        configure({}, [change])
