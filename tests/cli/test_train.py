"""`kinfold train` in a separate process; most of its options through the function that the command calls."""

import json
import os
import subprocess
import sys

import pytest

from tests.cli.runs import run as run_command
from tests.training.problems import feature_file


def kinfold(*arguments, **options):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    return subprocess.run(
        [sys.executable, "-m", "kinfold", *map(str, arguments)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=180,
        **options,
    )


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recipe")
    path = folder / "points.toml"
    path.write_text(
        f"""
[data]
name = "features"
root = '{feature_file(folder)}'
[model]
dim = 8
[loss]
name = "margin"
[miner]
name = "distance-weighted"
[sampler]
name = "spc"
batch_size = 24
per_class = 4
[training]
steps = 20
[evaluation]
every = 10
metrics = ["recall@1", "map@r"]
"""
    )
    return path


@pytest.fixture(scope="module")
def run(recipe):
    folder = recipe.parent / "run"
    process = kinfold("train", recipe, "--out", folder)
    assert process.returncode == 0, process.stderr
    return folder, process


@pytest.fixture
def command(capsys, monkeypatch):
    """A function like `kinfold`, in this process."""

    def run_here(*arguments):
        return subprocess.CompletedProcess(arguments, *run_command(capsys, monkeypatch, *arguments))

    return run_here


def test_a_run_prints_its_scores_and_its_folder(run):
    folder, process = run
    scores = json.loads((folder / "scores.json").read_text())
    assert f"{scores['test']['map@r']:.4f}" in process.stdout
    assert str(folder) in process.stdout
    assert "selected by validation" in process.stdout
    assert "step 10/20: validation: recall@1" in process.stderr


def test_evaluate_repeats_the_scores_of_the_run(run, command):
    folder, _ = run
    scores = json.loads((folder / "scores.json").read_text())
    for split in ("validation", "test"):
        process = command("evaluate", folder, "--split", split, "--metrics", "recall@1,map@r", "--json")
        assert json.loads(process.stdout)["metrics"] == scores[split]


def test_embed_writes_what_evaluate_reads(run, command):
    folder, _ = run
    scores = json.loads((folder / "scores.json").read_text())
    out = folder.parent / "test.npz"
    embedded = command("embed", folder, "--split", "test", "--out", out)
    assert embedded.returncode == 0, embedded.stderr
    evaluated = command("evaluate", out, "--metrics", "map@r", "--json")
    assert json.loads(evaluated.stdout)["metrics"]["map@r"] == pytest.approx(scores["test"]["map@r"], abs=1e-12)


def test_a_dataset_is_embedded_with_a_run_or_with_a_backbone(run, recipe, command):
    folder, _ = run
    source = recipe.parent / "points.npz"
    for option, dim in ((("--run", folder), 8), (("--backbone", "features"), 12)):
        out = folder.parent / f"{dim}.npz"
        process = command("embed", "features", "--root", source, *option, "--out", out)
        assert process.returncode == 0, process.stderr
        import numpy as np

        assert np.load(out)["embeddings"].shape == (192, dim)


def test_a_finished_run_is_not_trained_again(run, command):
    folder, first = run
    again = command("train", "--resume", folder)
    assert again.returncode == 0
    assert "is finished" in again.stderr
    assert again.stdout == first.stdout


def test_changes_shortcuts_and_json_work_together(recipe, tmp_path, command):
    process = command(
        "train",
        recipe,
        "--loss",
        "dro-topk",
        "--set",
        "loss.k=10",
        "--set",
        "miner.name=none",
        "--set",
        "evaluation.selection=test-oracle",
        "--out",
        tmp_path / "run",
        "--json",
    )
    assert process.returncode == 0, process.stderr
    report = json.loads(process.stdout)
    assert report["inflated"] is True
    assert report["run"] == str(tmp_path / "run")
    shown = command("train", "--resume", tmp_path / "run").stdout
    assert "test (inflated)" in shown
    assert "the step was selected on the test classes" in shown


def test_dry_run_prints_the_whole_configuration_and_writes_nothing(recipe, tmp_path, command, monkeypatch):
    monkeypatch.chdir(tmp_path)
    process = command("train", recipe, "--set", "seed=3", "--dry-run")
    assert process.returncode == 0
    assert "seed = 3" in process.stdout
    assert 'selection = "validation"' in process.stdout
    assert not [*tmp_path.iterdir()]


def test_dry_run_of_a_resumed_run_prints_its_configuration_and_trains_nothing(run, tmp_path, capsys, monkeypatch):
    folder, _ = run
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    code, shown, _ = run_command(capsys, monkeypatch, "train", "--resume", folder, "--dry-run")
    assert code == 0
    assert shown == (folder / "configuration.toml").read_text()
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


def test_a_run_starts_from_the_weights_of_another(run, recipe, tmp_path, capsys, monkeypatch):
    """Without a step its scores are those of the run it started from."""
    folder, _ = run
    out = tmp_path / "second"
    wide = ["--set", "training.steps=0", "--set", "evaluation.selection=last", "--set", "data.validation=0.2"]
    code, _, errors = run_command(capsys, monkeypatch, "train", recipe, "--from", folder, "--out", out, *wide)
    assert code == 0, errors
    scores = [json.loads((where / "scores.json").read_text()) for where in (folder, out)]
    assert scores[1]["test"] == scores[0]["test"]
    assert json.loads((out / "environment.json").read_text())["start"]["run"] == str(folder)


def test_without_a_folder_runs_are_numbered(recipe, tmp_path, command, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for number in (1, 2):
        process = command("train", recipe, "--set", "training.steps=1")
        assert process.returncode == 0, process.stderr
        assert (tmp_path / "runs" / f"points-{number}" / "scores.json").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "nothing"], "recipe 'nothing' not found"),
        (["train", "gliphs"], "did you mean 'glyphs'"),
        (["train", "{recipe}", "--set", "optimizer.rate=1"], "unknown key 'rate'"),
        (["train", "{recipe}", "--set", "sampler.batch_size=1000000"], "batch_size"),
        (["train", "{recipe}", "--out", "{run}"], "is not empty: continue it with --resume"),
        (["train", "--resume", "{recipe}"], "is not the folder of a run"),
        (["train", "{recipe}", "--resume", "{run}"], "give the folder alone"),
        (["evaluate", "{run}", "--gallery", "{recipe}"], "a run evaluates its own data"),
        (["evaluate", "{run}", "--split", "tset"], "no split 'tset'"),
        (
            ["embed", "features", "--root", "x.npz", "--run", "{run}", "--backbone", "conv4", "--out", "y.npz"],
            "give one",
        ),
        (["demo", "--steps", "0"], "steps"),
    ],
)
def test_a_mistake_gets_an_error_that_helps(arguments, message, recipe, run, capsys, monkeypatch):
    paths = {"recipe": recipe, "run": run[0]}
    code, _, errors = run_command(capsys, monkeypatch, *(argument.format(**paths) for argument in arguments))
    assert code == 2
    assert message in errors
    assert "Traceback" not in errors


def test_a_mistake_in_a_separate_process_prints_no_traceback(recipe):
    process = kinfold("train", recipe, "--loss", "tripplet")
    assert process.returncode == 2
    assert "did you mean 'triplet'" in process.stderr
    assert "Traceback" not in process.stderr
