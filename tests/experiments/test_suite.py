"""A suite is read as it is written, from wherever, and written as it is read."""

import json
import tomllib

import pytest

from kinfold.experiments import Bench, Suite, read_suite
from kinfold.experiments.schedule import list_planned_runs
from kinfold.training.config.parsing import parse_table, to_toml
from tests.cli.runs import run as command
from tests.experiments.tiny import (
    SPACE,
    TWELVE_RUNS,
    feature_file,
    read_results,
    run_inline,
    suite,
    tables,
    write_suite,
)


def written(folder, settings):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "suite.toml"
    path.write_text(to_toml(settings))
    return path


def with_root(folder, root):
    settings = tables(folder)
    settings["data"][0]["data"]["root"] = root
    return settings


def test_relative_roots_are_relative_to_the_file(tmp_path, monkeypatch):
    feature_file(tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    tiny_suite = read_suite(written(tmp_path / "suites", with_root(tmp_path, "../data/tiny.npz")))
    assert tiny_suite.build_config("tiny", "contrastive").data.root == str(tmp_path / "data" / "tiny.npz")


def test_a_root_on_the_command_line_is_relative_to_the_working_directory(tmp_path, monkeypatch):
    path = written(tmp_path / "suites", with_root(tmp_path, "nowhere.npz"))
    monkeypatch.chdir(tmp_path)
    tiny_suite = read_suite(path, roots={"tiny": "tiny.npz"})
    assert tiny_suite.build_config("tiny", "contrastive").data.root == str(tmp_path / "tiny.npz")
    assert tiny_suite.build_config("tiny", "contrastive").data.name == "features"


def test_a_root_of_the_base_is_relative_to_the_file_too(tmp_path):
    settings = tables(tmp_path, data=[{"name": "tiny"}])
    settings["base"]["data"] = {"name": "features", "root": "tiny.npz", "validation": 0.25}
    result = read_suite(written(tmp_path, settings)).build_config("tiny", "contrastive")
    assert result.data.root == str(tmp_path / "tiny.npz")


def test_changes_hold_for_every_method_that_says_nothing_itself(tmp_path):
    methods = [{"name": "a"}, {"name": "b", "optimizer": {"lr": 0.5}}]
    tiny_suite = read_suite(write_suite(tmp_path, method=methods), ["training.steps=7", "optimizer.lr=0.25"])
    assert [tiny_suite.build_config("tiny", name).training.steps for name in "ab"] == [7, 7]
    assert [tiny_suite.build_config("tiny", name).optimizer.lr for name in "ab"] == [0.25, 0.5]


def test_reference_rows_are_methods_that_need_no_training_and_are_added_once(tmp_path):
    tiny_suite = read_suite(write_suite(tmp_path, reference_rows=True, trials=2, base={"search": SPACE}))
    assert tiny_suite.methods == ["half-whitened", "whitened within classes", "contrastive"]
    again = parse_table(Suite, tomllib.loads(tiny_suite.to_toml()), "")
    assert again.methods == tiny_suite.methods
    assert [planned["trials"] for planned in list_planned_runs(tiny_suite)] == [0, 0, 2]
    run_inline(tiny_suite, tmp_path / "bench")
    steps = {row["method"]: row["step"] for row in read_results(tmp_path / "bench") if row["stage"] == "train"}
    assert [*steps] == tiny_suite.methods
    assert {steps["half-whitened"], steps["whitened within classes"]} == {"0"}


def test_base_data_and_method_lie_on_top_of_each_other_each_above_its_recipe(tmp_path):
    (tmp_path / "own.toml").write_text('[loss]\nname = "triplet"\nmargin = 0.3\n[optimizer]\nlr = 0.125\nclip = 2.0\n')
    settings = tables(
        tmp_path,
        base={"recipe": "features", "optimizer": {"lr": 0.5, "weight_decay": 0.0625}},
        method=[{"name": "a", "recipe": "own.toml", "loss": {"margin": 0.7}}, {"name": "b", "training": {"steps": 3}}],
    )
    settings["data"][0]["training"] = {"steps": 2}
    tiny_suite = read_suite(written(tmp_path, settings))
    first, second = (tiny_suite.build_config("tiny", name) for name in "ab")
    assert (first.loss.name, first.loss.options) == ("triplet", {"margin": 0.7})
    assert (first.optimizer.lr, first.optimizer.clip, first.optimizer.weight_decay) == (0.125, 2.0, 0.0625)
    assert first.optimizer.proxy_factor == 100.0  # of the recipe `features`
    assert (first.training.steps, second.training.steps) == (2, 3)


def test_what_a_suite_writes_is_read_as_the_same_suite(tmp_path):
    tiny_suite = suite(
        tmp_path,
        **TWELVE_RUNS,
        baseline="triplet",
        protocol="reality-check",
        metric="recall@1",
        trial_steps=3,
    )
    path = tmp_path / "again.toml"
    path.write_text(tiny_suite.to_toml())
    assert read_suite(path) == tiny_suite
    assert parse_table(type(tiny_suite), vars(tiny_suite) | {"baseline": "triplet"}, "") == tiny_suite


def test_the_folder_of_a_bench_remembers_its_suite(tmp_path):
    tiny_suite = suite(tmp_path)
    run_inline(tiny_suite, tmp_path / "bench")
    assert Bench.open(tmp_path / "bench").suite == tiny_suite


def test_a_suite_is_called_like_its_file_unless_it_says_otherwise(tmp_path):
    settings = tables(tmp_path)
    del settings["name"]
    assert read_suite(written(tmp_path, settings)).name == "suite"


def test_runs_have_their_protocol_seed_and_fold_and_no_test_items(tmp_path):
    tiny_suite = suite(tmp_path, protocol="reality-check")
    run = tiny_suite.build_run_tables("tiny", "contrastive", 5, 3, {"optimizer.lr": 0.25})
    assert run["seed"] == 5
    assert (run["data"]["protocol"], run["data"]["fold"], run["data"]["test"]) == ("reality-check", 3, "withheld")
    assert run["optimizer"]["lr"] == 0.25
    assert "search" not in run


def test_options_that_a_loss_refuses_are_found_before_anything_runs(tmp_path):
    method = [{"name": "lifted", "loss": {"name": "lifted"}, "search": {"loss.margin": {"low": 0.3, "high": 1.5}}}]
    with pytest.raises(ValueError, match=r"lifted on tiny: margin=0\.3 belongs to variant='oh-song'"):
        suite(tmp_path, method=method, trials=2)


def test_the_length_of_a_trial_needs_trials(tmp_path):
    with pytest.raises(ValueError, match=r"trial_steps = 5 is the length of each trial.*trials = 1 or more"):
        suite(tmp_path, trials=0, trial_steps=5)
    with pytest.raises(ValueError, match="a number above 0"):
        suite(tmp_path, trials=2, trial_steps=0)


def test_unknown_names_come_with_the_nearest(tmp_path):
    with pytest.raises(ValueError, match=r"no 'contrastiv' in this suite .did you mean 'contrastive'\?"):
        suite(tmp_path).tables("tiny", "contrastiv")


def test_a_dry_run_shows_the_runs_and_trains_nothing(tmp_path, capsys, monkeypatch):
    file = write_suite(tmp_path, **TWELVE_RUNS)
    code, output, _ = command(capsys, monkeypatch, "bench", file, "--out", tmp_path / "bench", "--dry-run", "--json")
    assert code == 0
    runs = json.loads(output)
    assert [(run["method"], run["trials"], run["runs"]) for run in runs] == [
        ("contrastive", 2, 6),
        ("triplet", 2, 6),
    ]
    code, output, _ = command(capsys, monkeypatch, "bench", file, "--out", tmp_path / "bench", "--dry-run")
    assert "# tiny, triplet: 6 runs, 2 trials of a search" in output
    assert not (tmp_path / "bench").exists()


@pytest.mark.parametrize("options", [["--dry-run"], []])
def test_a_misspelled_option_of_a_method_is_reported_before_the_start(options, tmp_path, capsys, monkeypatch):
    file = write_suite(tmp_path, method=[{"name": "wrong", "loss": {"name": "triplet", "marign": 0.1}}])
    code, _, errors = command(capsys, monkeypatch, "bench", file, "--out", tmp_path / "bench", *options)
    assert code == 2
    assert "error: wrong on tiny: 'triplet' has no option 'marign'\nhelp: did you mean 'margin'?\n" in errors
    assert not (tmp_path / "bench").exists()


def test_another_loss_does_not_inherit_the_miner_of_the_base(tmp_path):
    base = {"loss": {"name": "margin"}, "miner": {"name": "distance-weighted"}}
    methods = [
        {"name": "margin"},
        {"name": "lifted", "loss": {"name": "lifted"}},
        {"name": "triplet", "loss": {"name": "triplet"}, "miner": {"name": "semihard"}},
        {"name": "all", "miner": {"name": "none"}},
    ]
    tiny_suite = suite(tmp_path, base=base, method=methods)
    miners = {name: tiny_suite.build_config("tiny", name).miner for name in tiny_suite.methods}
    assert {name: miner and miner.name for name, miner in miners.items()} == {
        "margin": "distance-weighted",
        "lifted": None,
        "triplet": "semihard",
        "all": None,
    }
