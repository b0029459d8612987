"""Which runs a folder holds, and what they are called."""

import re
import shutil

import pytest

from kinfold.report import collect_content
from kinfold.training import train
from kinfold.training.config.parsing import merge_tables
from tests.report.runs import RECIPE, feature_file, feature_run, find_remarks


def test_runs_that_differ_in_their_seeds_are_one_method(tmp_path):
    data = {"data": {"name": "features", "root": str(feature_file(tmp_path))}}
    for loss in ("margin", "triplet"):
        for seed in (0, 1):
            train(
                merge_tables(RECIPE, data, {"loss": {"name": loss}, "seed": seed}), tmp_path / "all" / f"{loss}-{seed}"
            )
    content = collect_content(tmp_path / "all")
    (table,) = content["tables"]
    assert [row["method"] for row in table["rows"]] == ["margin", "triplet"]
    assert [row["cells"]["recall@1"]["count"] for row in table["rows"]] == [2, 2]
    assert table["rows"][1]["command"].splitlines()[1] == (
        "kinfold train all/triplet-1/configuration.toml --out again/all/triplet-1"
    )
    assert len(content["spaces"]) == 2


def test_a_folder_named_after_loss_and_miner_is_shown_as_loss_plus_miner(tmp_path):
    data = {"data": {"name": "features", "root": str(feature_file(tmp_path))}}
    mined = merge_tables(RECIPE, data, {"miner": {"name": "distance-weighted"}})
    for folder in ("margin-distance-weighted-0", "mine-0"):
        train(merge_tables(mined, {"optimizer": {"lr": 0.01}} if folder == "mine-0" else {}), tmp_path / "all" / folder)
    methods = {row["method"] for row in collect_content(tmp_path / "all")["tables"][0]["rows"]}
    assert methods == {"margin + distance-weighted", "mine"}


def test_a_run_with_an_unknown_loss_is_named_and_the_others_are_shown(tmp_path):
    feature_run(tmp_path)
    other = tmp_path / "other"
    shutil.copytree(tmp_path / "run", other)
    file = other / "configuration.toml"
    named = re.sub(r'(\[loss\]\nname = )"[^"]*"', r'\1"of-a-plugin"', file.read_text())
    assert named != file.read_text()
    file.write_text(named)
    content = collect_content(tmp_path)
    assert find_remarks(content, "cannot be opened: loss 'of-a-plugin' not found")
    assert find_remarks(content, "--plugin FILE adds yours")
    assert len(content["tables"][0]["rows"]) == 1
    shutil.rmtree(tmp_path / "run")
    with pytest.raises(ValueError, match="loss 'of-a-plugin' not found"):
        collect_content(tmp_path)


@pytest.mark.parametrize("name", ["nothing", "empty"])
def test_a_folder_without_runs_is_refused(name, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"there is no folder|is neither a run, nor a bench, nor a folder of runs"):
        collect_content(tmp_path / name)
