"""`kinfold adapt`: a feature file to a run that embeds, searches and exports."""

import json
import subprocess

import numpy as np
import pytest

from tests.adaptation.problems import noisy_classes
from tests.cli.runs import run as run_command


@pytest.fixture
def run(capsys, monkeypatch):
    """A function that runs a command and checks its exit code."""

    def run_here(*arguments, code=0):
        result = subprocess.CompletedProcess(arguments, *run_command(capsys, monkeypatch, *arguments))
        assert result.returncode == code, result.stderr
        return result

    return run_here


@pytest.fixture
def features(tmp_path):
    rows, labels = noisy_classes(classes=20)
    split = np.where(labels < 14, "train", "test")
    np.savez(tmp_path / "rows.npz", embeddings=rows, labels=labels, split=split)
    return tmp_path / "rows.npz"


def test_the_folder_is_that_of_an_ordinary_run(tmp_path, features, run):
    out = tmp_path / "adapted"
    result = run("adapt", features, "--out", out, "--minutes", "0.001")
    assert "LDA" in result.stdout
    assert "Use the adapted space" in " ".join(result.stdout.split())
    run("embed", out, "--split", "test", "--out", tmp_path / "test.npz")
    with np.load(tmp_path / "test.npz") as file:
        assert len(file["embeddings"]) == 48
    again = json.loads(run("adapt", features, "--out", out, "--json").stdout)
    assert again["winner"] == "LDA"
    assert again["test"]["recall@1"]["gain"] > 0


def test_wrong_input_is_an_error_with_help(tmp_path, features, run):
    assert "error: " in run("adapt", tmp_path / "none.npz", "--out", tmp_path / "x", code=2).stderr
    assert "minutes must be greater" in run("adapt", features, "--out", tmp_path / "x", "--minutes", "0", code=2).stderr
