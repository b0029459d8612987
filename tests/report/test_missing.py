"""What a report says of runs that are unfinished, broken or without some of their classes, and shows of them."""

import json
import re
import shutil

import pytest
import torch

from kinfold.report import collect_content
from tests.report.runs import BrokenOffError, break_off, feature_run, image_run, said


def test_without_validation_the_page_says_which_weights(tmp_path):
    changes = {"data": {"validation": 0.0}, "evaluation": {"selection": "last"}}
    content = collect_content(feature_run(tmp_path, changes).folder)
    assert said(content, "no validation classes: the weights are those of the last step")
    assert [table["caption"] for table in content["tables"]] == ["rows: test classes"]


def test_without_test_classes_the_space_is_that_of_others(tmp_path):
    content = collect_content(feature_run(tmp_path, test=False).folder)
    assert said(content, "there are no test classes: its embedding space is that of the validation classes")
    assert [space["split"] for space in content["spaces"]] == ["validation"]
    assert [table["caption"] for table in content["tables"]] == ["rows: validation classes"]


def test_a_run_with_a_loss_that_nobody_knows_is_named_and_the_others_are_shown(tmp_path):
    feature_run(tmp_path)
    other = tmp_path / "other"
    shutil.copytree(tmp_path / "run", other)
    file = other / "configuration.toml"
    named = re.sub(r'(\[loss\]\nname = )"[^"]*"', r'\1"of-a-plugin"', file.read_text())
    assert named != file.read_text()
    file.write_text(named)
    content = collect_content(tmp_path)
    assert said(content, "cannot be opened: loss 'of-a-plugin' not found")
    assert said(content, "--plugin FILE adds yours")
    assert len(content["tables"][0]["rows"]) == 1
    shutil.rmtree(tmp_path / "run")
    with pytest.raises(ValueError, match="loss 'of-a-plugin' not found"):
        collect_content(tmp_path)


def test_an_interrupted_run_keeps_its_test_classes_held_out(tmp_path):
    with pytest.raises(BrokenOffError):
        feature_run(tmp_path, callbacks=[break_off(5)])
    content = collect_content(tmp_path / "run")
    assert said(content, "is not finished (step 5 of 6 in its log): there are no results, and the best weights so far")
    assert said(content, "the test classes stay held out until training is finished")
    assert [space["split"] for space in content["spaces"]] == ["validation"]
    (row,) = content["tables"][0]["rows"]
    assert row["cells"]["recall@1"] == {
        "mean": None,
        "half_width": None,
        "count": 0,
        "published": None,
        "printed": None,
        "bold": False,
        "note": "not finished",
        "start": None,
        "gain": None,
        "gain_half_width": None,
    }
    assert row["command"] == "kinfold train --resume run"


def test_a_run_that_stopped_before_any_weights_has_no_map(tmp_path):
    changes = {"data": {"validation": 0.0}, "evaluation": {"selection": "last"}, "training": {"save_every": 5}}
    with pytest.raises(BrokenOffError):
        feature_run(tmp_path, changes, callbacks=[break_off(1)])
    content = collect_content(tmp_path / "run")
    assert content["spaces"] == []
    assert said(content, "no map of margin, seed 0: it has no weights yet")
    assert said(content, "no pair weights of margin: it has no weights yet")


def test_losses_that_are_not_finite_are_told_and_left_open(tmp_path):
    run = feature_run(tmp_path, {"optimizer": {"name": "sgd", "lr": 1e38}})
    content = collect_content(run.folder)
    assert said(content, f"training ended early: {run.scores['ended']}")
    assert said(content, "margin on rows: the loss was not finite at step 1")
    assert content["charts"]["training"][0]["series"][0]["y"][-1] is None
    assert len(content["spaces"]) == 1  # of the best weights so far


def test_weights_that_are_not_finite_have_no_map(tmp_path):
    run = feature_run(tmp_path)
    state = run.run_folder.weights(run.run_folder.model)
    spoilt = {name: torch.full_like(value, torch.nan) for name, value in state["model"].items()}
    run.run_folder.finish(state["step"], spoilt, run.scores)
    content = collect_content(run.folder)
    assert content["spaces"] == []
    assert said(content, "no map of margin, seed 0: its weights are not usable")
    assert said(content, "no pair weights of margin: its weights are not usable")


def test_pictures_outside_of_the_data_are_not_embedded(tmp_path):
    content = collect_content(image_run(tmp_path).folder)
    assert content["thumbnails"]["count"] == 19  # of twenty test items
    assert said(content, "1 images lie outside of the folder of their dataset")
    text = json.dumps(content)
    assert "secret" not in text
    assert str(tmp_path) not in text


@pytest.mark.parametrize("name", ["nothing", "empty"])
def test_folders_that_are_no_runs(name, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"there is no folder|is neither a run, nor a bench, nor a folder of runs"):
        collect_content(tmp_path / name)


def test_results_are_told_when_the_data_is_gone(tmp_path):
    run = feature_run(tmp_path)
    (tmp_path / "rows.npz").unlink()
    content = collect_content(run.folder)
    assert content["tables"][0]["rows"][0]["cells"]["recall@1"]["mean"] == run.scores["test"]["recall@1"]
    assert content["spaces"] == []
    assert said(content, "no map of margin, seed 0: ")
    assert str(tmp_path) not in json.dumps(content)
