"""Invalid settings are errors that name what is wrong and the nearest valid name."""

import pytest

from kinfold.training.config.parsing import configure


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
