"""Every combination of loss, miner, sampler and head that a published table has can be trained."""

import numpy as np
import pytest
import torch

from kinfold.papers import published
from kinfold.papers.plan import PlanOptions, plan_table
from kinfold.training import train
from tests.papers.tables import on_glyphs, table


def parts_of(settings):
    """Which loss, miner, sampler and head are put together."""
    miner = settings.get("miner", {}).get("name")
    return settings["loss"]["name"], miner, settings["sampler"]["name"], settings["model"].get("head", "linear")


def combinations():
    """Every distinct combination of the tables, by the first row that has it."""
    result = {}
    for name in published.list_tables():
        for row in table(name).rows:
            for data in row.layers:
                settings = row.settings(data)
                if "loss" in settings and settings.get("training", {}).get("steps") != 0:
                    result.setdefault(parts_of(settings), (name, row.name, data))
    return result


COMBINATIONS = combinations()
# clustering a thousand classes of pictures takes longer than two steps, and is tested elsewhere
MEASURED_ONCE = (
    'evaluation.metrics=["recall@1"]',
    "evaluation.metric=recall@1",
    "evaluation.selection=last",
    "evaluation.diagnose=never",
)


def names_of(key):
    return "-".join(word or "none" for word in key)


def two_steps(key, small, folder, changes=()):
    """Train the row that has a combination, with the settings of a run of its bench."""
    name, row, data = COMBINATIONS[key]
    plan = plan_table(table(name), PlanOptions(rows=(row,), data=(data,), small=small, changes=changes))
    tiny_run = plan.build_suite(data).build_run_tables(data, row, 0, 0)
    assert parts_of({**tiny_run, "model": plan.settings[data][row]["model"]}) == key
    run = train(tiny_run, folder, dataset=small.dataset)
    losses = [event["loss"] for event in run.events if event["event"] == "step"]
    assert run.scores["steps"] == 2
    assert np.isfinite(losses).all()
    assert all(torch.isfinite(weights).all() for weights in run.model().state_dict().values())


@pytest.mark.sampled(3)
@pytest.mark.parametrize("combination", COMBINATIONS, ids=names_of)
def test_every_combination_of_the_tables_runs_two_steps(combination, small, tmp_path):
    two_steps(combination, small, tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize("combination", COMBINATIONS, ids=names_of)
def test_every_combination_runs_two_steps_on_glyphs(combination, tmp_path):
    two_steps(combination, on_glyphs(), tmp_path / "run", MEASURED_ONCE)
