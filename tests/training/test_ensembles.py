"""Ensembles in training, from end to end: runs that break off, several ranks, and the recipes of DRML."""

import json
import math

import pytest
import torch

import kinfold
from kinfold import recipes
from kinfold.data import Rows
from kinfold.files.state import read_state
from kinfold.models.export import DeployedModel, export
from kinfold.training import Run, train
from kinfold.training.config.parsing import read_tables
from tests import torchrun
from tests.problems import LOSSES
from tests.training import ensembles, tiny
from tests.training.ensembles import INDEPENDENT, RELATIONAL
from tests.training.test_resume import SimulatedCrashError, crash_at


def run(folder, changes, **more):
    return train(tiny.recipe(**{**changes, **more}), folder, dataset=tiny.dataset())


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_trains_inside_a_relational_head(name, tmp_path):
    result = run(tmp_path / "run", RELATIONAL, loss={"name": name}, miner=None, training={"steps": 4})
    assert result.scores["ended"] == "all steps done"
    steps = [event for event in result.events if event["event"] == "step"]
    assert len(steps) == 4
    for event in steps:
        terms = {key: event[key] for key in event if key.startswith(("loss", "occupancy", "reconstruction"))}
        names = {
            "loss",
            "loss-whole",
            "reconstruction",
            *(f"{n}-{k}" for n in ("loss-part", "occupancy") for k in (1, 2)),
        }
        assert terms.keys() == names
        assert all(math.isfinite(value) for value in terms.values())
        assert event["occupancy-1"] + event["occupancy-2"] == pytest.approx(1)
        parts_sum = event["loss-part-1"] + event["loss-part-2"] + 2 * event["loss-whole"] + event["reconstruction"]
        assert event["loss"] == pytest.approx(parts_sum, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("miner", kinfold.list("miners"))
def test_every_miner_trains_inside_a_relational_head(miner, tmp_path):
    loss = {"name": "contrastive"}
    result = run(tmp_path / "run", RELATIONAL, loss=loss, miner={"name": miner}, training={"steps": 3})
    assert result.scores["steps"] == 3


def test_a_relational_head_learns(tmp_path):
    """Both the loss of the embedding and the reconstruction fall."""
    loss = {"loss": {"name": "multi-similarity"}, "miner": None, "optimizer": {"lr": 0.01}}
    model = {"head": "relational", "head_options": {"branches": 2, "branch_input": "full"}}
    result = run(tmp_path / "run", {"model": model}, **loss, training={"steps": 150})
    steps = [event for event in result.events if event["event"] == "step"]
    for name in ("reconstruction", "loss-whole"):
        first, last = ([event[name] for event in steps[part]] for part in (slice(0, 20), slice(-20, None)))
        assert sum(last) < 0.8 * sum(first), name


def test_a_memory_is_refused_with_the_reason(tmp_path):
    with pytest.raises(ValueError, match=r"leave \[memory\] out, or use another head"):
        run(tmp_path / "run", RELATIONAL, memory={"size": 40})
    assert not (tmp_path / "run").exists()


def test_invalid_branches_are_named_before_anything_is_written(tmp_path):
    with pytest.raises(ValueError, match="width of the features=10 cannot be divided evenly by 3 branches"):
        run(tmp_path / "run", {"model": {"head": "relational", "head_options": {"branches": 3}}})
    assert not (tmp_path / "run").exists()


BROKEN = {
    "relational": RELATIONAL,
    "drawn": {**RELATIONAL, "miner": {"name": "drml-hard"}},
    "proxies": {**RELATIONAL, "loss": {"name": "proxy-anchor"}, "miner": None, "optimizer": {"loss_lr": 0.05}},
    "bfloat16 in small parts": {**RELATIONAL, "training": {"precision": "bfloat16", "micro_batch": 5}},
    "independent": INDEPENDENT,
    "groups": {"model": {"head": "divided", "head_options": {"branches": 2, "every": 2}}, "miner": None},
    "draws": {"model": {"head": "variational", "head_options": {"hidden": 8}}},
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", BROKEN)
def test_an_interrupted_run_ends_like_an_uninterrupted_one(name, tmp_path):
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    tables, data = tiny.recipe(**BROKEN[name]), tiny.dataset()
    train(tables, tmp_path / "expected", dataset=data)
    for step in (3, 17):
        folder = tmp_path / f"broken-{step}"
        with pytest.raises(SimulatedCrashError):
            train(tables, folder, dataset=data, callbacks=[crash_at(step)])
        train(folder=folder, resume=True, dataset=data)
        assert tiny.difference(folder, tmp_path / "expected") == ""
    torch.set_num_threads(before)


@pytest.mark.parametrize("changes", [RELATIONAL, INDEPENDENT])
def test_a_run_is_opened_again_and_exported(changes, tmp_path):
    pytest.importorskip("onnxruntime", reason="the extra export is not installed")
    data = tiny.dataset()
    result = train(tiny.recipe(**changes), tmp_path / "run", dataset=data)
    test = data.subset("test")
    again = Run.open(tmp_path / "run", data)
    assert torch.equal(again.embed(test), result.embed(test))
    assert isinstance(test.items, Rows)
    rows = torch.from_numpy(test.items.array().copy())
    assert export(DeployedModel(again.model(), None, unit=True), tmp_path / "model.onnx", rows).difference < 1e-4


# -- ranks --------------------------------------------------------------------------------------------------------

RUNS = {
    "relational": {**RELATIONAL, "training": {"precision": "float64", "steps": 12}},
    "independent": {**INDEPENDENT, "training": {"precision": "float64", "steps": 12}},
}


@pytest.fixture(scope="module")
def launched(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    (folder / "runs.json").write_text(json.dumps(RUNS))
    torchrun.run(2, "tests.training.ensemble_rank_run", folder, timeout=300)
    return folder


@pytest.mark.slow
def test_two_ranks_have_the_gradient_and_the_terms_of_one_process(launched):
    reports = json.loads((launched / "steps.json").read_text())
    assert len(reports) == 2
    for on_rank in reports:
        assert len(on_rank) == 2 * len(ensembles.HEADS) * 7
        for name, compared in on_rank.items():
            assert compared["size"] > 1e-4, name
            assert compared["logged"] > 4, name
            assert compared["difference"] < 1e-10, name


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_a_run_on_two_ranks_equals_that_of_one_process(name, launched):
    alone = run(launched / f"{name} alone", RUNS[name])
    several = launched / f"{name} on 2"
    weights = [read_state(folder / "model.safetensors")["model"] for folder in (several, alone.folder)]
    for key, expected in weights[1].items():
        torch.testing.assert_close(weights[0][key], expected, atol=1e-10, rtol=1e-10, msg=key)
    for line, expected in zip(tiny.lines(several), tiny.lines(alone.folder), strict=True):
        assert line == pytest.approx(expected, abs=1e-10)


# -- recipes ------------------------------------------------------------------------------------------------------

DRML = [name for name in kinfold.list("recipes") if name.startswith("drml/")]


def test_every_drml_recipe_differs_from_its_baseline_only_in_the_method():
    assert len(DRML) == 12
    for name in DRML:
        if name.endswith("-baseline"):
            continue
        ours, baseline = (read_tables(recipes.find_recipe(recipe)) for recipe in (name, f"{name}-baseline"))
        assert ours["model"].pop("head") == "relational"
        assert baseline["model"].pop("head") == "linear"
        ours["model"].pop("head_options", None)
        assert ours == baseline, name


@pytest.mark.parametrize("name", DRML)
def test_every_drml_recipe_trains_on_features(name, tmp_path):
    changes = ["data.name=features", "model.dim=8", "training.steps=3", "schedule.warmup=0"]
    changes += ["sampler.batch_size=24", "evaluation.diagnose=never"]
    if not name.endswith("baseline"):
        changes.append("model.head_options.branches=2")
    result = train(read_tables(recipes.find_recipe(name)), tmp_path / "run", changes=changes, dataset=tiny.dataset())
    assert result.scores["steps"] == 3
