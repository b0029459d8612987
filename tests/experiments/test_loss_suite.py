"""`kinfold bench --losses`: a suite of losses and of what needs no training, without a TOML file."""

import json
import subprocess
import sys

import numpy as np
import pytest

from kinfold.experiments import loss_suite
from kinfold.experiments.loss_suite import UNTRAINED_ROWS, make_loss_suite
from tests.adaptation.problems import noisy_classes


@pytest.fixture
def features(tmp_path):
    rows, labels = noisy_classes(classes=40, per_class=6)
    split = np.where(labels < 30, "train", "test")
    np.savez(tmp_path / "rows.npz", embeddings=rows, labels=labels, split=split)
    return tmp_path / "rows.npz"


def test_the_suite_has_every_loss_and_the_rows_without_training(features):
    suite = make_loss_suite(features, ["margin", "triplet"])
    assert suite.methods == [*UNTRAINED_ROWS, "margin", "triplet"]
    assert suite.protocol == "given"
    assert [suite.build_config("rows", name).training.steps for name in suite.methods] == [0, 0, 0, 600, 600]
    assert suite.build_config("rows", "margin").miner.name == "distance-weighted"


def test_minutes_become_steps_that_the_suite_holds(features, monkeypatch):
    clock = iter([0.0, 9.0, 10.0, 11.0, 20.0, 24.0])  # a trial of 1 s for 10 steps, and one of 4 s for 40
    monkeypatch.setattr("kinfold.experiments.loss_suite.time.perf_counter", lambda: next(clock))
    monkeypatch.setattr(loss_suite, "train", lambda *_, **__: None)
    suite = make_loss_suite(features, ["margin", "triplet"], minutes=1, seeds=3, jobs=1)
    assert suite.build_config("rows", "margin").training.steps == 100  # 60 s for six runs, 0.1 s a step
    assert suite.build_config("rows", "as given").training.steps == 0


def test_wrong_options_are_refused(features):
    with pytest.raises(ValueError, match="did you mean 'margin'"):
        make_loss_suite(features, ["margn"])
    with pytest.raises(ValueError, match="called 'margin'"):
        make_loss_suite(features, ["margin", "margin"])
    with pytest.raises(ValueError, match="minutes must be greater"):
        make_loss_suite(features, ["margin"], minutes=0)


@pytest.mark.slow
def test_the_command_compares_losses_with_the_untrained_rows(features, tmp_path):
    command = ["bench", "--losses", "supcon", "--root", str(features), "--minutes", "0.01", "--jobs", "1"]
    result = subprocess.run(
        [sys.executable, "-m", "kinfold", *command, "--out", str(tmp_path / "bench"), "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert set(UNTRAINED_ROWS) <= set(json.dumps(json.loads(result.stdout)).replace('"', " , ").split(" , "))


def test_completion_proposes_commands():
    environment = {"_KINFOLD_COMPLETE": "complete_bash", "COMP_WORDS": "kinfold comp", "COMP_CWORD": "1"}
    program = "import sys; sys.argv = ['kinfold']; from kinfold.cli.main import main; main()"
    import os

    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )
    assert "compress" in result.stdout
