"""Which classes a command takes of a run, what it says of them, and what it does with a run that is not finished."""

import json

import numpy as np
import pytest

from tests.cli.runs import feature_rows, run

SHORT = ["--set", "training.steps=3", "--set", "evaluation.every=1", "--set", "model.dim=8"]


@pytest.fixture
def rows(tmp_path, monkeypatch):
    """30 classes of features; ten of them for test in split.npz, none in whole.npz."""
    monkeypatch.chdir(tmp_path)
    found, labels = feature_rows()
    np.savez("whole.npz", embeddings=found, labels=labels)
    np.savez("split.npz", embeddings=found, labels=labels, split=np.where(labels < 20, "train", "test"))
    return tmp_path


@pytest.fixture
def command(rows, capsys, monkeypatch):
    return lambda *arguments: run(capsys, monkeypatch, *arguments)


@pytest.fixture
def stopped(rows, command):
    """A run with test classes, as it is before its last file is written."""
    assert command("train", "features", "--root", "split.npz", *SHORT, "--out", "r")[0] == 0
    (rows / "r" / "scores.json").unlink()
    return "r"


NOT_FINISHED = "r is not finished: its weights are those of step "


def test_evaluate_says_which_classes_it_took(rows, command):
    assert command("train", "features", "--root", "split.npz", *SHORT, "--out", "r")[0] == 0
    _, shown, errors = command("evaluate", "r", "-m", "recall@1")
    assert "test split of r: 80 queries, 10 classes, cosine" in shown
    assert "chosen" not in shown
    assert errors == ""
    _, shown, _ = command("evaluate", "r", "-m", "recall@1", "--split", "validation")
    assert "validation split of r: 32 queries, 4 classes" in shown
    assert "the step was chosen by its scores on these classes" in shown
    told = json.loads(command("evaluate", "r", "-m", "recall@1", "--split", "validation", "--json")[1])
    assert told["split"] == "validation"
    assert told["selected_on"]


def test_the_test_classes_of_an_unfinished_run_stay_sealed(stopped, command):
    code, shown, errors = command("evaluate", stopped, "--json")
    assert code == 0
    assert json.loads(shown)["queries"] == 32  # of four classes
    assert NOT_FINISHED in errors
    for given in (["evaluate", stopped], ["search", stopped, "#3"], ["embed", stopped, "--out", "e.npz"]):
        code, _, errors = command(*given, "--split", "test")
        assert code == 2
        assert "its test classes stay sealed until it is" in errors


def test_search_and_embed_leave_sealed_classes_out_and_say_so(stopped, command):
    code, shown, errors = command("search", stopped, "#3", "--json")
    assert code == 0
    assert json.loads(shown)["items"] == 160
    assert NOT_FINISHED in errors
    code, shown, errors = command("embed", stopped, "--out", "e.npz")
    assert code == 0
    assert "32 rows of split, validation alone" in shown
    assert NOT_FINISHED in errors


def test_export_of_an_unfinished_run_says_of_which_step_it_is(stopped, command):
    code, _, errors = command("export", stopped, "--out", "r.pt2")
    assert code == 0, errors
    assert NOT_FINISHED in errors


def test_without_test_classes_the_selected_number_is_called_that(rows, command):
    _, shown, _ = command("train", "features", "--root", "whole.npz", *SHORT, "--out", "r")
    assert "selected by validation map@r" in shown
    assert "there are no test classes; the step was chosen on these" in shown
    code, shown, _ = command("embed", "r", "--out", "e.npz")
    assert code == 0
    assert "validation alone" in shown


def test_a_training_that_never_helped_is_called_that(rows, command):
    wild = ["--set", "optimizer.lr=30", "--set", "optimizer.name=sgd"]
    _, shown, _ = command("train", "features", "--root", "split.npz", *SHORT, *wild, "--out", "r")
    assert "step 0 of 3" in shown
    assert "the start was selected: no later step was better" in " ".join(shown.split())


def test_what_a_table_of_numbers_leaves_open_is_said(rows, command):
    np.savez("one.npz", embeddings=np.eye(6), labels=np.zeros(6, dtype=int))
    _, shown, _ = command("evaluate", "one.npz", "-m", "recall@1,nmi,roc-auc")
    assert "6 queries, 1 class, cosine" in shown
    assert "one class alone: whatever is found is right" in shown
    assert "nan: there is nothing among these items that roc-auc" in shown
    _, shown, _ = command("evaluate", "whole.npz", "-m", "recall@1,nmi", "--intervals", "queries")
    assert "no interval: nmi is of all items together" in shown
