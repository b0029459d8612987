"""Remarks about runs that are unfinished, failed or lack some classes, and what is shown of them."""

import json
import shutil

import pytest
import torch

from kinfold.files.documents import write_result
from kinfold.report import collect_content
from tests.report.runs import BrokenOffError, break_off, feature_run, find_remarks, image_run


def test_a_bench_that_is_not_complete_says_so(bench, tmp_path):
    shutil.copytree(bench, tmp_path / "tiny")
    shutil.rmtree(tmp_path / "tiny" / "runs" / "tiny" / "triplet" / "seed-2")
    record = tmp_path / "tiny" / "records" / "runs" / "tiny" / "triplet" / "seed-1.json"
    write_result(record, {**json.loads(record.read_text()), "error": "/home/ann/birds/wren.jpg is missing"})
    (tmp_path / "tiny" / "runs" / "tiny" / "triplet" / "seed-1" / "scores.json").unlink()
    content = collect_content(tmp_path / "tiny")
    assert find_remarks(content, "runs/tiny/triplet/seed-1 failed: wren.jpg is missing")
    assert find_remarks(
        content, "the bench is not complete: 2 of 6 repeats have no result yet (triplet, seed 1, triplet, seed 2)"
    )
    rows = {row["method"]: row for row in content["tables"][0]["rows"]}
    assert rows["triplet"]["cells"]["recall@1"]["count"] == 1
    assert rows["triplet"]["command"] == "kinfold bench --resume tiny"


def test_without_validation_classes_a_remark_says_which_weights(tmp_path):
    changes = {"data": {"validation": 0.0}, "evaluation": {"selection": "last"}}
    content = collect_content(feature_run(tmp_path, changes).folder)
    assert find_remarks(content, "no validation classes: the weights are those of the last step")
    assert [table["caption"] for table in content["tables"]] == ["rows: test classes"]


def test_without_test_classes_the_embedding_space_is_that_of_the_validation_classes(tmp_path):
    content = collect_content(feature_run(tmp_path, test=False).folder)
    assert find_remarks(content, "there are no test classes: its embedding space is that of the validation classes")
    assert [space["split"] for space in content["spaces"]] == ["validation"]
    assert [table["caption"] for table in content["tables"]] == ["rows: validation classes"]


def test_an_interrupted_run_keeps_its_test_classes_held_out(tmp_path):
    with pytest.raises(BrokenOffError):
        feature_run(tmp_path, callbacks=[break_off(5)])
    content = collect_content(tmp_path / "run")
    assert find_remarks(
        content, "is not finished (step 5 of 6 in its log): there are no results, and the best weights so far"
    )
    assert find_remarks(content, "the test classes stay held out until training is finished")
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
    assert find_remarks(content, "no map of margin, seed 0: it has no weights yet")
    assert find_remarks(content, "no pair weights of margin: it has no weights yet")


def test_losses_that_are_not_finite_are_reported_and_left_out(tmp_path):
    run = feature_run(tmp_path, {"optimizer": {"name": "sgd", "lr": 1e38}})
    content = collect_content(run.folder)
    assert find_remarks(content, f"training ended early: {run.scores['ended']}")
    assert find_remarks(content, "margin on rows: the loss was not finite at step 1")
    assert content["charts"]["training"][0]["series"][0]["y"][-1] is None
    assert len(content["spaces"]) == 1  # of the best weights so far


def test_weights_that_are_not_finite_have_no_map(tmp_path):
    run = feature_run(tmp_path)
    state = run.run_folder.read_weights(run.run_folder.model)
    spoilt = {name: torch.full_like(value, torch.nan) for name, value in state["model"].items()}
    run.run_folder.finish(state["step"], spoilt, run.scores)
    content = collect_content(run.folder)
    assert content["spaces"] == []
    assert find_remarks(content, "no map of margin, seed 0: its weights are not usable")
    assert find_remarks(content, "no pair weights of margin: its weights are not usable")


def test_images_outside_of_the_data_are_not_embedded(tmp_path):
    content = collect_content(image_run(tmp_path).folder)
    assert content["thumbnails"]["count"] == 19  # of twenty test items
    assert find_remarks(content, "1 images lie outside of the folder of their dataset")
    text = json.dumps(content)
    assert "secret" not in text
    assert str(tmp_path) not in text


def test_results_are_shown_without_the_data(tmp_path):
    run = feature_run(tmp_path)
    (tmp_path / "rows.npz").unlink()
    content = collect_content(run.folder)
    assert content["tables"][0]["rows"][0]["cells"]["recall@1"]["mean"] == run.scores["test"]["recall@1"]
    assert content["spaces"] == []
    assert find_remarks(content, "no map of margin, seed 0: ")
    assert str(tmp_path) not in json.dumps(content)
