"""The time of a run, said before it begins."""

import json

import numpy as np
import pytest
import torch

import kinfold
from kinfold.cli.progress import _ProgressLines, describe_estimate
from kinfold.models import create
from kinfold.training import step_trial
from kinfold.training.loop.trainer import Event
from kinfold.training.step_trial import estimate_run, needs_estimate
from tests.training.test_backbones import color_images, tables

CONV4 = {"backbone": "conv4", "dim": 4, "backbone_options": {"channels": 3, "width": 8}}


@pytest.fixture
def clock(monkeypatch):
    """Every image takes a second forward and backward at 224 pixels, in proportion to its pixels, and half forward."""
    monkeypatch.setattr(
        "kinfold.training.step_trial.time.perf_counter", iter(np.arange(0.0, 1000.0, 4.0)).__next__
    )  # reading: 4 s

    def take(model, images, precision, backward=True):
        half = 0.5 if precision == "bfloat16" else 1.0
        return len(images) * (images.shape[-1] / 224) ** 2 * (1.0 if backward else 0.5) * half

    monkeypatch.setattr(step_trial, "_time", take)


def estimate(steps=10, **options):
    model = create("conv4", dim=4, backbone_options={"channels": 3, "width": 8})
    settings = {"batch_size": 16, "steps": steps, "evaluated": 100, "total": 1000, **options}
    return estimate_run(model, lambda: torch.zeros(8, 3, 224, 224), **settings)


def test_times_add_up_to_the_run(clock):
    result = estimate()  # an image: 1 s, and 0.5 s to read
    assert result.step_seconds == 16 * 1.5
    assert result.run_seconds == 10 * 16 * 1.5 + 100 * (0.5 + 0.5)
    assert result.features_seconds == 1000 * (0.5 + 0.5)


def test_workers_read_while_the_network_computes(clock):
    assert estimate(workers=2).step_seconds == 16 * 1.0
    assert estimate(workers=1).features_seconds == 1000 * 0.5


def test_only_what_was_timed_as_faster_is_advised(clock):
    faster = estimate().faster
    assert faster == {
        "data.size=128": (128 / 224) ** 2,
        "data.size=96": (96 / 224) ** 2,
        "training.precision=bfloat16": 0.5,
    }
    assert set(estimate(precision="bfloat16").faster) == {"data.size=128", "data.size=96"}
    assert estimate(steps=1, evaluated=0).faster == {}  # a short run needs no advice


def test_the_trial_is_recorded_and_said_and_changes_nothing(tmp_path, monkeypatch):
    assert not needs_estimate(create("conv4", dim=4, backbone_options={"width": 8}))
    quiet = kinfold.train(tables(model=CONV4), tmp_path / "quiet", dataset=color_images())
    monkeypatch.setattr(step_trial, "MIN_WEIGHTS", 0)
    events = []
    run = kinfold.train(tables(model=CONV4), tmp_path / "run", dataset=color_images(), callbacks=[events.append])
    assert events[0].kind == "estimate"
    assert 0 < events[0].values["step_seconds"] < events[0].values["run_seconds"]
    recorded = json.loads((run.folder / "environment.json").read_text())["estimate"]
    assert recorded["run_seconds"] == events[0].values["run_seconds"]
    assert not any(event["event"] == "estimate" for event in run.events)
    weights = quiet.model().state_dict()
    assert all(torch.equal(value, weights[name]) for name, value in run.model().state_dict().items())


def test_the_lines_say_times_and_settings():
    values = {"step_seconds": 2.0, "run_seconds": 2100.0, "features_seconds": 130.0, "data.size=96": 0.4}
    assert describe_estimate(Event("estimate", 0, 1000, values)) == [
        "a step takes 2 s, 1,000 steps and their evaluations 35 min",
        "faster: --set data.size=96 takes 40 % of the time of a step",
        "faster: features once take 2 min (kinfold embed ... --backbone), then kinfold adapt or kinfold train features "
        "trains a head on them in minutes",
    ]
    short = {"step_seconds": 0.01, "run_seconds": 5.0, "features_seconds": 1.0}
    assert len(describe_estimate(Event("estimate", 0, 500, short))) == 1


def test_a_log_file_gets_a_line_from_time_to_time(monkeypatch, capsys):
    now = iter([0.0, 0.0, 1.0, 20.0, 21.0, 40.0])
    monkeypatch.setattr("kinfold.cli.progress.time.monotonic", lambda: next(now))
    lines = _ProgressLines()
    for share in (0.0, 0.1, 0.5, 0.6, 1.0):
        lines("embed", share)
    assert capsys.readouterr().err == "embed: 50 %, 20 s left\n"
