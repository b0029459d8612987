"""A run folder that somebody else made: nothing outside of it is read, changed or deleted, inside only our files."""

import json
import os
import shutil

import pytest

from kinfold.files.state import write_state
from kinfold.training import Run, train
from kinfold.training.run_folder import RunFolder
from tests.training.tiny import dataset, difference, recipe


class SimulatedCrashError(Exception):
    pass


def crash(event):
    if event.kind == "step" and event.step == 15:
        raise SimulatedCrashError


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    folder = tmp_path_factory.mktemp("expected") / "run"
    train(recipe(), folder, dataset=dataset())
    return folder


@pytest.fixture(scope="module")
def crashed_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("broken") / "run"
    with pytest.raises(SimulatedCrashError):
        train(recipe(), folder, dataset=dataset(), callbacks=[crash])
    return folder


@pytest.fixture
def run(crashed_folder, tmp_path):
    """Broke off at step 15, with checkpoints of steps 8 and 12."""
    shutil.copytree(crashed_folder, tmp_path / "run")
    return RunFolder(tmp_path / "run")


def resume_run(folder):
    return train(folder=folder.path, resume=True, dataset=dataset())


def contents(folder):
    return {path.relative_to(folder): path.is_file() and path.read_bytes() for path in folder.rglob("*")}


FILES = ["configuration.toml", "environment.json", "log.jsonl", "best.safetensors", ".lock"]
CHECKPOINTS = ["checkpoints/list.json", "checkpoints/000000012.safetensors", "checkpoints"]


@pytest.mark.parametrize("name", [*FILES, *CHECKPOINTS])
def test_a_link_in_the_folder_is_refused_before_anything_is_written(name, run, tmp_path):
    victim = tmp_path / "victim"
    victim.mkdir()
    if name == ".lock":
        (run.path / name).touch()
    shutil.move(run.path / name, victim / "target")
    (victim / "other.safetensors").write_text("precious")
    (victim / ".list.json.1.tmp").write_text("precious")
    os.symlink(victim / "target", run.path / name)
    before, inside = contents(victim), contents(run.path)
    with pytest.raises(ValueError, match=r"is a symbolic link, and no link is followed inside of"):
        resume_run(run)
    assert contents(victim) == before
    assert contents(run.path) == inside


@pytest.mark.parametrize("name", ["scores.json", "model.safetensors", "tensorboard", ".scores.json.7.tmp"])
@pytest.mark.parametrize("dangling", [False, True])
def test_a_link_in_place_of_a_file_written_later_is_not_followed(name, dangling, run, tmp_path):
    victim = tmp_path / "victim"
    victim.mkdir()
    if not dangling:
        (victim / "target").write_text("precious")
    os.symlink(victim / "target", run.path / name)
    before = contents(victim)
    if name.endswith(".tmp"):
        resume_run(run)
    else:
        with pytest.raises(ValueError, match=r"is a symbolic link"):
            _ = resume_run(run).scores
    assert contents(victim) == before


def test_a_new_run_does_not_start_through_links(tmp_path):
    victim = tmp_path / "victim"
    victim.mkdir()
    for name in ("checkpoints", "environment.json", ".lock"):
        folder = tmp_path / f"run-{name}"
        folder.mkdir()
        os.symlink(victim / ("" if name == "checkpoints" else "target"), folder / name)
        with pytest.raises(ValueError, match="is a symbolic link"):
            train(recipe(), folder, dataset=dataset())
    assert contents(victim) == {}


def test_the_run_folder_itself_may_be_a_link(run, expected, tmp_path):
    os.symlink(run.path, tmp_path / "link")
    resume_run(RunFolder(tmp_path / "link"))
    assert difference(run.path, expected) == ""


@pytest.mark.parametrize(
    "name", ["../victim.safetensors", "/tmp/000000001.safetensors", "a/000000001.safetensors", ".."]
)
def test_a_path_in_the_checkpoint_list_is_refused(name, run):
    (run.path / "victim.safetensors").write_text("precious")
    listed = run.checkpoints / "list.json"
    entries = json.loads(listed.read_text())
    listed.write_text(json.dumps([{"step": 1, "file": name, "sha256": None}, *entries]))
    with pytest.raises(ValueError, match=r"list.json is damaged: \[0\].file must be a string like"):
        resume_run(run)
    assert (run.path / "victim.safetensors").read_text() == "precious"


def test_files_that_are_not_listed_are_not_deleted(run, expected):
    mine = ["checkpoints/mine.safetensors", "checkpoints/000000003.safetensors", ".notes.1.tmp", "checkpoints/.a.1.tmp"]
    for name in mine:
        (run.path / name).write_text("mine")
    resume_run(run)
    assert [(run.path / name).read_text() for name in mine] == ["mine"] * 4
    for name in mine:
        (run.path / name).unlink()
    assert difference(run.path, expected) == ""
    kept = {path.name for path in run.checkpoints.glob("*.safetensors")}
    listed = json.loads((run.checkpoints / "list.json").read_text())
    assert kept == {entry["file"] for entry in listed if entry["sha256"]}
    assert len(kept) == 2


def test_a_log_with_a_hard_link_is_not_truncated_through_it(run, expected, tmp_path):
    os.link(run.log, tmp_path / "second")
    before = (tmp_path / "second").read_bytes()
    resume_run(run)
    assert (tmp_path / "second").read_bytes() == before
    assert difference(run.path, expected) == ""


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) * 3 // 4] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["model.safetensors", "scores.json"])
def test_one_flipped_bit_of_a_finished_run_is_an_error_that_names_the_file(name, expected, tmp_path):
    shutil.copytree(expected, tmp_path / "run")
    flip(tmp_path / "run" / name)
    finished = Run.open(tmp_path / "run", dataset())
    with pytest.raises(ValueError, match=rf"{name} is (damaged|not valid)"):
        finished.model()


def test_one_flipped_bit_of_the_best_weights_so_far_is_an_error(run):
    assert Run.open(run.path, dataset()).weights_step >= 0
    flip(run.best)
    with pytest.raises(ValueError, match=r"best.safetensors is damaged"):
        Run.open(run.path, dataset()).model()


def test_intact_weights_of_another_run_are_refused(expected, tmp_path):
    shutil.copytree(expected, tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    state = folder.read_weights(folder.model)
    write_state(folder.model, {**state, "model": {name: value + 1 for name, value in state["model"].items()}})
    with pytest.raises(ValueError, match=r"model.safetensors is damaged: its contents are not what was written"):
        Run.open(folder.path, dataset()).model()


@pytest.mark.parametrize("threads", [0, -1, 1_000_000, 1.5, "many", None, True, 10**400])
def test_an_impossible_number_of_threads_is_refused(threads, run):
    about = json.loads(run.environment.read_text())
    run.environment.write_text(json.dumps({**about, "threads": threads}))
    with pytest.raises(ValueError, match=r"environment.json is damaged: threads must be an integer from 1 to 1024"):
        resume_run(run)
