"""Which classes the commands use of a finished and of an unfinished run, and what they print about it."""

import json

import numpy as np
import pytest

from tests.cli.runs import feature_rows, run

SHORT = ["--set", "training.steps=3", "--set", "evaluation.every=1", "--set", "model.dim=8"]


@pytest.fixture
def rows(tmp_path, monkeypatch):
    """30 classes of features; ten of them for test in split.npz, none in whole.npz."""
    monkeypatch.chdir(tmp_path)
    features, labels = feature_rows()
    np.savez("whole.npz", embeddings=features, labels=labels)
    np.savez("split.npz", embeddings=features, labels=labels, split=np.where(labels < 20, "train", "test"))
    return tmp_path


@pytest.fixture
def command(rows, capsys, monkeypatch):
    return lambda *arguments: run(capsys, monkeypatch, *arguments)


@pytest.fixture
def unfinished(rows, command):
    """A run with test classes, before its last file is written."""
    assert command("train", "features", "--root", "split.npz", *SHORT, "--out", "r")[0] == 0
    (rows / "r" / "scores.json").unlink()
    return "r"


NOT_FINISHED = "r is not finished: its weights are those of step "


def test_evaluate_prints_the_split(rows, command):
    assert command("train", "features", "--root", "split.npz", *SHORT, "--out", "r")[0] == 0
    _, output, errors = command("evaluate", "r", "-m", "recall@1")
    assert "test split of r: 80 queries, 10 classes, cosine" in output
    assert "selected by its scores" not in output
    assert errors == ""
    _, output, _ = command("evaluate", "r", "-m", "recall@1", "--split", "validation")
    assert "validation split of r: 32 queries, 4 classes" in output
    assert "the step was selected by its scores on these classes" in output
    result = json.loads(command("evaluate", "r", "-m", "recall@1", "--split", "validation", "--json")[1])
    assert result["split"] == "validation"
    assert result["selected_on"]


def test_the_test_classes_of_an_unfinished_run_are_held_out(unfinished, command):
    code, output, errors = command("evaluate", unfinished, "--json")
    assert code == 0
    assert json.loads(output)["queries"] == 32  # of four classes
    assert NOT_FINISHED in errors
    for arguments in (["evaluate", unfinished], ["search", unfinished, "#3"], ["embed", unfinished, "--out", "e.npz"]):
        code, _, errors = command(*arguments, "--split", "test")
        assert code == 2
        assert "its test classes are held out until it is" in errors


def test_search_and_embed_leave_held_out_classes_out_and_report_it(unfinished, command):
    code, output, errors = command("search", unfinished, "#3", "--json")
    assert code == 0
    assert json.loads(output)["items"] == 160
    assert NOT_FINISHED in errors
    code, output, errors = command("embed", unfinished, "--out", "e.npz")
    assert code == 0
    assert "32 rows of split, validation alone" in output
    assert NOT_FINISHED in errors


def test_export_of_an_unfinished_run_prints_its_step(unfinished, command):
    code, _, errors = command("export", unfinished, "--out", "r.pt2")
    assert code == 0, errors
    assert NOT_FINISHED in errors


def test_without_test_classes_the_score_is_marked_as_selected(rows, command):
    _, output, _ = command("train", "features", "--root", "whole.npz", *SHORT, "--out", "r")
    assert "selected by validation map@r" in output
    assert "there are no test classes; the step was selected on the validation classes" in " ".join(output.split())
    code, output, _ = command("embed", "r", "--out", "e.npz")
    assert code == 0
    assert "validation alone" in output


def test_a_training_without_improvement_is_reported(rows, command):
    wild = ["--set", "optimizer.lr=30", "--set", "optimizer.name=sgd"]
    _, output, _ = command("train", "features", "--root", "split.npz", *SHORT, *wild, "--out", "r")
    assert "step 0 of 3" in output
    assert "the start was selected: no later step was better" in " ".join(output.split())


def test_undefined_values_and_missing_intervals_are_explained(rows, command):
    np.savez("one.npz", embeddings=np.eye(6), labels=np.zeros(6, dtype=int))
    _, output, _ = command("evaluate", "one.npz", "-m", "recall@1,nmi,roc-auc")
    assert "6 queries, 1 class, cosine" in output
    assert "there is only one class: every neighbor is correct" in output
    assert "nan: roc-auc cannot be computed for these items" in output
    _, output, _ = command("evaluate", "whole.npz", "-m", "recall@1,nmi", "--intervals", "queries")
    assert "no interval: nmi is a value of all items" in output
