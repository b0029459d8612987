"""Full disks, read-only folders, damaged files, two processes at once: a clear error, and the last good state kept."""

import json
import os
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kinfold.files.state import read_state, states_equal
from kinfold.training import Run, train
from kinfold.training.run_folder import RunFolder
from tests.training.tiny import STEPS, dataset, difference, recipe, write_files

ROOT = Path(__file__).parent.parent.parent
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


class SimulatedCrashError(Exception):
    pass


def run(folder, *callbacks):
    return train(recipe(), folder, dataset=dataset(), callbacks=callbacks)


def resume_run(folder):
    return train(folder=folder, resume=True, dataset=dataset())


def at_step(step, action):
    def callback(event):
        if event.kind == "step" and event.step == step:
            action()

    return callback


def crash():
    raise SimulatedCrashError


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    return run(tmp_path_factory.mktemp("whole") / "expected").folder


@pytest.fixture(scope="module")
def crashed_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("broken") / "run"
    with pytest.raises(SimulatedCrashError):
        run(folder, at_step(15, crash))
    return folder


@pytest.fixture
def stopped(crashed_folder, tmp_path):
    """A run that broke off at step 15, with checkpoints of steps 8 and 12."""
    shutil.copytree(crashed_folder, tmp_path / "run")
    return RunFolder(tmp_path / "run")


def newest(folder):
    return folder.checkpoints / "000000012.safetensors"


def cut(content):
    return content[: len(content) // 2]


def flip(content):
    changed = bytearray(content)
    changed[len(content) // 2] ^= 1
    return bytes(changed)


def empty(content):
    return b""


def message(error):
    return re.sub(r"\s+", " ", str(error.value))


@pytest.mark.parametrize("damage", [cut, flip, empty, None])
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_can_be_used(damage, stopped, expected):
    path = newest(stopped)
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(damage(path.read_bytes()))
    before = {file.name: file.read_bytes() for file in stopped.path.rglob("*") if file.is_file()}
    with pytest.raises(ValueError, match=r"the last checkpoint cannot be used") as error:
        resume_run(stopped.path)
    assert str(path) in message(error)
    assert ("missing" if damage is None else "damaged") in message(error)
    assert before == {file.name: file.read_bytes() for file in stopped.path.rglob("*") if file.is_file()}
    # follow the advice of the message
    assert "To continue from step 8 instead, delete its entry, the last one, from" in message(error)
    listed = stopped.checkpoints / "list.json"
    assert str(listed) in message(error)
    listed.write_text(json.dumps(json.loads(listed.read_text())[:-1]))
    resume_run(stopped.path)
    assert difference(stopped.path, expected) == ""


def test_without_an_earlier_checkpoint_the_error_says_to_start_again(tmp_path):
    with pytest.raises(SimulatedCrashError):
        run(tmp_path / "run", at_step(6, crash))
    path = tmp_path / "run" / "checkpoints" / "000000004.safetensors"
    path.write_bytes(flip(path.read_bytes()))
    with pytest.raises(ValueError, match=r"000000004.*There is no earlier one: start the run again in another folder"):
        resume_run(tmp_path / "run")


@pytest.mark.parametrize(
    "content", [b"", b"[", b"{}x", b"null", b"3", b'{"step": 1}', b'[{"step": 12}]', b'["a"]', b"\xff\xfe", b"[[]]"]
)
def test_a_damaged_checkpoint_list_is_named_and_can_be_deleted(content, stopped, expected):
    listed = stopped.checkpoints / "list.json"
    listed.write_bytes(content)
    with pytest.raises(ValueError, match="Delete it to continue from the newest checkpoint beside it") as error:
        resume_run(stopped.path)
    assert f"{listed} is damaged" in message(error)
    assert newest(stopped).exists()
    # follow the advice of the message
    listed.unlink()
    steps = []
    train(folder=stopped.path, resume=True, dataset=dataset(), callbacks=[lambda event: steps.append(event.step)])
    assert steps[0] == 13
    assert difference(stopped.path, expected) == ""


def test_an_incomplete_log_or_damaged_best_weights_change_nothing(stopped, expected):
    stopped.best.write_bytes(flip(stopped.best.read_bytes()))
    with open(stopped.log, "a") as file:
        file.write('{"event": "step", "st')
    assert stopped.read_events()[-1]["step"] == 15  # what can be read of it
    resume_run(stopped.path)
    changed, whole = (read_state(folder.model) for folder in (stopped, RunFolder(expected)))
    assert states_equal(changed, whole)


def test_partial_files_of_a_killed_process_are_deleted(stopped, expected):
    for name in (".scores.json.123.tmp", "checkpoints/.000000016.safetensors.123.tmp"):
        (stopped.path / name).write_bytes(b"half")
    resume_run(stopped.path)
    assert difference(stopped.path, expected) == ""


def test_a_folder_without_a_run_is_not_resumed(tmp_path):
    reasons = {tmp_path: "it has no configuration.toml", tmp_path / "nowhere": "there is no folder"}
    for folder, reason in reasons.items():
        with pytest.raises(ValueError, match=f"is not the folder of a run: {reason}"):
            resume_run(folder)


def test_a_run_does_not_start_in_a_folder_with_files(stopped, tmp_path):
    before = {file: file.read_bytes() for file in stopped.path.rglob("*") if file.is_file()}
    with pytest.raises(ValueError, match=rf"is not empty: continue it with --resume {stopped.path}"):
        run(stopped.path)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("mine")
    with pytest.raises(ValueError, match="notes is not empty: choose another folder"):
        run(tmp_path / "notes")
    with pytest.raises(ValueError, match=r"mine.txt is not empty: choose another folder"):
        run(tmp_path / "notes" / "mine.txt")
    assert [file.name for file in (tmp_path / "notes").iterdir()] == ["mine.txt"]
    assert before == {file: file.read_bytes() for file in stopped.path.rglob("*") if file.is_file()}


def test_a_start_that_was_killed_can_be_repeated(tmp_path, expected):
    folder = tmp_path / "run"
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "environment.json").write_text("{}")
    (folder / ".configuration.toml.77.tmp").write_text("[data")
    run(folder)
    assert difference(folder, expected) == ""


def test_a_folder_that_cannot_be_created_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(
        OSError, match=r"cannot create the run folder .*file/run: Not a directory; choose a folder that you may"
    ):
        run(tmp_path / "file" / "run")


class SmallFiles:
    """No file may grow beyond so many bytes: the system refuses, as it does on a full disk."""

    def __init__(self, size):
        self.size = size

    def __enter__(self):
        self.before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def set(self):
        resource.setrlimit(resource.RLIMIT_FSIZE, (self.size, self.before[1]))

    def __exit__(self, *error):
        resource.setrlimit(resource.RLIMIT_FSIZE, self.before)


def test_a_failed_checkpoint_write_keeps_the_previous_checkpoint(tmp_path, expected):
    folder = tmp_path / "run"
    small = SmallFiles(6000)  # more than the log needs, less than a checkpoint
    with small, pytest.raises(OSError, match=r"cannot write .*000000012.safetensors: File too large") as error:
        run(folder, at_step(10, small.set))
    assert "what was there before is kept" in message(error)
    assert "resume" in message(error)
    assert RunFolder(folder).read_last_state()["done"] == 8
    assert not [*folder.rglob("*.tmp")]
    resume_run(folder)
    assert difference(folder, expected) == ""


@pytest.mark.parametrize("failing", range(1, 7))
def test_a_full_disk_at_any_write_keeps_a_state_to_resume_from(failing, tmp_path, expected, monkeypatch):
    folder, calls = tmp_path / "run", []
    replace = os.replace

    def full(source, target):
        calls.append(target)
        if len(calls) > 2 * failing:
            raise OSError(28, "No space left on device")
        replace(source, target)

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left on device; what was there before is kept"):
        run(folder)
    monkeypatch.undo()
    assert RunFolder(folder).begun
    resume_run(folder)
    assert difference(folder, expected) == ""


@pytest.fixture(scope="module")
def mounted(tmp_path_factory):
    within = ["unshare", "--map-root-user", "--mount"]
    if shutil.which("unshare") is None or subprocess.run([*within, "true"], capture_output=True).returncode:
        pytest.skip("a small disk of its own needs unshare and the right to mount")
    command = [*within, sys.executable, "-m", "tests.training.mount_run", str(tmp_path_factory.mktemp("disk"))]
    process = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=120)
    assert process.returncode == 0, process.stderr[-3000:]
    return json.loads(process.stdout)


@pytest.mark.slow
def test_a_run_on_a_full_disk_can_be_resumed(mounted):
    assert "No space left on device" in mounted["full"]
    assert mounted["kept when full"] == 8
    assert "No space left on device" in mounted["still full"]
    assert "No space left on device" in mounted["full from the start"]
    assert (mounted["resumed"], mounted["difference"]) == ("", "")
    assert (mounted["begun again"], mounted["difference of the new one"]) == ("", "")


def test_a_run_on_a_read_only_disk_can_be_resumed(mounted):
    assert re.match(r"cannot write to .*/run: Read-only file system; check its permissions", mounted["read-only"])
    assert re.match(r"cannot create the run folder .*/other: Read-only", mounted["read-only from the start"])
    assert mounted["kept when read-only"] == 8


@pytest.mark.slow
def test_two_processes_do_not_train_in_one_folder(tmp_path):
    path = write_files(tmp_path)
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "kinfold", "train", "--resume", str(folder)]
    processes = []

    def second():
        processes.append(subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=120))

    result = train(path, folder, callbacks=[at_step(9, second)])
    assert processes[0].returncode == 2
    assert f"error: another process is training in {folder}" in processes[0].stderr
    assert result.scores["steps"] == STEPS
    # the first one goes on undisturbed
    train(path, tmp_path / "alone")
    assert difference(folder, tmp_path / "alone") == ""


def test_an_interrupted_run_can_be_opened(stopped):
    opened = Run.open(stopped.path, dataset())
    assert not opened.finished
    assert opened.model().dim == 6
    with pytest.raises(ValueError, match=rf"is not finished; continue it with kinfold train --resume {stopped.path}"):
        _ = opened.scores
