"""Real kills (SIGKILL) of `kinfold.adapt` in other processes, at several points."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kinfold.adaptation import Adaptation

SCRIPT = """
import sys
from dataclasses import replace
import kinfold
from kinfold.adaptation.plan import PLANS
from tests.adaptation.problems import noisy_classes
PLANS["quick"] = replace(PLANS["quick"], head_steps=40, race=2, residual=True)
kinfold.adapt(*noisy_classes(), sys.argv[1], plan="quick")
"""


def begin(folder):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(["src", os.getcwd()])}
    return subprocess.Popen([sys.executable, "-c", SCRIPT, str(folder)], env=environment)


def count_records(folder):
    return len([*Path(folder, "adaptation", "records").glob("*.json")])


def kill_when(folder, is_reached):
    process = begin(folder)
    deadline = time.monotonic() + 600
    while not is_reached() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert process.poll() is None, "it ended before it could be killed"
    process.send_signal(signal.SIGKILL)
    process.wait()


@pytest.mark.slow
def test_killed_anywhere_it_ends_with_the_same_table_and_weights(tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert begin(whole).wait() == 0
    kill_when(killed, lambda: (killed / "adaptation").is_dir())
    for count in (1, 6, 9, 14, 20, count_records(whole) - 2):
        kill_when(killed, lambda count=count: count_records(killed) >= count)
    kill_when(killed, lambda: (killed / "configuration.toml").is_file())
    assert begin(killed).wait() == 0
    first, second = Adaptation.open(whole), Adaptation.open(killed)
    assert [repr(replace(row, seconds=0.0)) for row in first.steps] == [
        repr(replace(row, seconds=0.0)) for row in second.steps
    ]
    assert first.verdict.partition(" Other processes")[0] == second.verdict.partition(" Other processes")[0]
    weights = [each.run.model().state_dict() for each in (first, second)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
