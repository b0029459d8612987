"""However a run is ended, going on with it ends bit for bit where the run that was left alone ends."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

from kinfold.training import Stopped, Trainer, train
from kinfold.training.builder import RunBuilder
from kinfold.training.run_folder import RunFolder
from tests.training.tiny import VARIANTS, dataset, difference, lines, recipe, write_files

ROOT = Path(__file__).parent.parent.parent
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}
SIGNALS = [signal.SIGTERM, signal.SIGINT]


class SimulatedCrashError(Exception):
    pass


def crash_at(step):
    def callback(event):
        if event.kind == "step" and event.step == step:
            raise SimulatedCrashError

    return callback


def signal_at(kind, step, number):
    def callback(event):
        if event.kind == kind and event.step == step:
            os.kill(os.getpid(), number)

    return callback


def run(variant, folder, *callbacks, **changes):
    return train(recipe(variant, **changes), folder, dataset=dataset(variant), callbacks=callbacks)


def resume_run(variant, folder, *callbacks):
    return train(folder=folder, resume=True, dataset=dataset(variant), callbacks=callbacks)


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """As everywhere in these tests: a run in another process must round alike."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def expected(tmp_path):
    run("margin", tmp_path / "expected")
    return tmp_path / "expected"


@pytest.mark.sampled(3)
@pytest.mark.parametrize("variant", VARIANTS)
def test_an_interrupted_run_ends_like_an_uninterrupted_one(variant, tmp_path):
    alone = run(variant, tmp_path / "expected")
    seed = random.randrange(2**32)
    print(f"random seed {seed}")
    for step in random.Random(seed).sample(range(1, alone.scores["steps"] + 1), 2):
        folder = tmp_path / f"broken-{step}"
        with pytest.raises(SimulatedCrashError):
            run(variant, folder, crash_at(step))
        resume_run(variant, folder)
        assert difference(folder, alone.folder) == "", f"broken off at step {step}"


@pytest.mark.parametrize(
    ("part", "variant"),
    [
        ("model", "margin"),
        ("optimizer", "margin"),
        ("optimizer", "sgd"),
        ("objective", "proxy-anchor"),
        ("objective", "memory"),
        ("sampler", "gc"),
        ("scaler", "float16"),
        ("selection", "early stop"),
        ("best", "early stop"),
    ],
)
def test_a_resume_without_one_part_of_the_state_is_detected(part, variant, tmp_path, monkeypatch):
    run(variant, tmp_path / "expected")
    with pytest.raises(SimulatedCrashError):
        run(variant, tmp_path / "broken", crash_at(5))
    load = Trainer.load_state_dict
    forgetful = lambda trainer, state: load(trainer, {**state, part: trainer.state_dict()[part]})  # noqa: E731
    monkeypatch.setattr(Trainer, "load_state_dict", forgetful)
    resume_run(variant, tmp_path / "broken")
    assert difference(tmp_path / "broken", tmp_path / "expected") != ""


def test_another_seed_gives_another_run(expected, tmp_path):
    tables = recipe()
    train({**tables, "seed": 1}, tmp_path / "other", dataset=dataset())
    assert difference(tmp_path / "other", expected) == "model.safetensors"


def run_and_kill(folder, how, number, *variants):
    command = [sys.executable, "-m", "tests.training.kill_run", str(folder), how, str(number), *variants]
    process = subprocess.run(command, cwd=ROOT, env=ONE_THREAD, capture_output=True, text=True, timeout=900)
    assert process.returncode == 0, process.stderr[-3000:]
    return json.loads(process.stdout), process.stderr


def check_every_call(folder, every, *variants):
    results, errors = run_and_kill(folder, "calls", every, *variants)
    for variant in variants:
        assert len(results[variant]) > 60 / every
        kinds = {result["moment"].split()[1] for result in results[variant]}
        assert kinds >= {"open", "write", "fsync", "os.rename"}
        for result in results[variant]:
            assert result["ended"] == -signal.SIGKILL, (variant, result, errors)
            assert (result["resumed"], result["difference"]) == (0, ""), (variant, result, errors)


@pytest.mark.slow
def test_a_run_killed_before_every_fifth_write_can_be_resumed(tmp_path):
    check_every_call(tmp_path, 5, "margin")


@pytest.mark.slow
def test_a_run_killed_before_every_write_can_be_resumed(tmp_path):
    check_every_call(tmp_path, 1, "margin", "gc", "memory", "images", "early stop")


def check_random_kills(folder, *variants):
    seed = random.randrange(2**32)
    print(f"random seed {seed}")
    results, errors = run_and_kill(folder, "times", seed, *variants)
    for variant in variants:
        last = results[variant][-1]
        assert (last["resumed"], last["difference"]) == (0, ""), (seed, variant, results[variant], errors)
        # a kill may come too late, but not every time
        assert -signal.SIGKILL in [result["ended"] for result in results[variant]]


@pytest.mark.slow
def test_a_run_killed_three_times_at_random_can_be_resumed(tmp_path):
    check_random_kills(tmp_path, "workers", "images", "gc", "memory with draws")


@pytest.mark.slow
def test_every_variant_killed_three_times_at_random_can_be_resumed(tmp_path):
    for round_ in range(3):
        (tmp_path / f"{round_}").mkdir()
        check_random_kills(tmp_path / f"{round_}", *VARIANTS)


@pytest.mark.slow
def test_signals_that_reach_the_workers_too_save_and_end_the_run(tmp_path):
    seed = random.randrange(2**32)
    print(f"random seed {seed}")
    results, errors = run_and_kill(tmp_path, "signals", seed, "workers")
    assert [result["ended"] for result in results["workers"]] == [143, 130], (results, errors)
    for result in results["workers"]:
        assert result["saved"] == result["step"], (result, errors)
        assert (result["resumed"], result["difference"]) == (0, ""), (result, errors)


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize(("kind", "step"), [("evaluation", 0), ("step", 5), ("evaluation", 12), ("step", 24)])
def test_a_signal_saves_at_once_and_the_run_resumes_there(number, kind, step, expected, tmp_path):
    before = [signal.getsignal(each) for each in (*SIGNALS, signal.SIGCHLD)]
    folder = tmp_path / "stopped"
    with pytest.raises(Stopped, match=f"stopped at step {step}") as stopped:
        run("margin", folder, signal_at(kind, step, number))
    assert (stopped.value.signal, stopped.value.step) == (number, step)
    assert RunFolder(folder).read_last_state()["done"] == step
    assert not RunFolder(folder).finished
    assert [signal.getsignal(each) for each in (*SIGNALS, signal.SIGCHLD)] == before
    resume_run("margin", folder)
    assert difference(folder, expected) == ""


def test_a_run_stopped_before_the_first_step_counts_its_evaluation_once(tmp_path):
    run("early stop", tmp_path / "expected")
    with pytest.raises(Stopped):
        run("early stop", tmp_path / "stopped", signal_at("evaluation", 0, signal.SIGTERM))
    resume_run("early stop", tmp_path / "stopped")
    assert difference(tmp_path / "stopped", tmp_path / "expected") == ""


def test_an_evaluation_whose_workers_get_the_signal_too_stops_without_an_error(expected, tmp_path, monkeypatch):
    measured, calls = RunBuilder.compute_metrics, []

    def broken(*args):
        calls.append(args)
        if len(calls) == 3:  # after step 12
            os.kill(os.getpid(), signal.SIGTERM)
            raise RuntimeError("DataLoader worker (pid 1) exited unexpectedly")
        return measured(*args)

    monkeypatch.setattr(RunBuilder, "compute_metrics", broken)
    with pytest.raises(Stopped, match="stopped at step 8"):
        run("margin", tmp_path / "stopped")
    resume_run("margin", tmp_path / "stopped")
    assert difference(tmp_path / "stopped", expected) == ""


def test_a_second_interrupt_does_not_wait(interruptible, tmp_path):
    def twice(event):
        if event.kind == "step" and event.step == 6:
            # not os.kill: a second signal that comes before the first was handled, by another thread, is lost
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run("margin", tmp_path / "run", twice)
    assert RunFolder(tmp_path / "run").read_last_state()["done"] == 4


def test_workers_that_die_without_a_signal_to_the_run_are_an_error(tmp_path):
    def breaks(event):
        if event.kind == "step" and event.step == 2:
            raise RuntimeError("DataLoader worker (pid 1) is killed")

    with pytest.raises(RuntimeError, match="is killed"):
        run("margin", tmp_path / "run", breaks)


def test_outside_the_main_thread_training_works_without_signals(expected, tmp_path):
    thread = threading.Thread(target=run, args=("margin", tmp_path / "run"))
    thread.start()
    thread.join()
    assert difference(tmp_path / "run", expected) == ""


def test_means_in_the_log_do_not_depend_on_where_the_run_was_stopped(tmp_path):
    often = {"training": {"log_every": 7}}
    run("margin", tmp_path / "expected", **often)
    with pytest.raises(Stopped):
        run("margin", tmp_path / "stopped", signal_at("step", 9, signal.SIGTERM), **often)
    resume_run("margin", tmp_path / "stopped")
    assert lines(tmp_path / "stopped") == lines(tmp_path / "expected")


def test_a_finished_run_is_returned_unchanged(expected):
    before = {path: path.stat().st_mtime_ns for path in expected.rglob("*")}
    assert resume_run("margin", expected).scores["steps"] == 24
    assert {path: path.stat().st_mtime_ns for path in expected.rglob("*")} == before


def wait_for(folder, step):
    """Until this step is in the log."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if any(event["step"] >= step for event in RunFolder(folder).read_events()):
            return
        time.sleep(0.005)
    raise AssertionError(f"step {step} was not reached")


@pytest.mark.slow
@pytest.mark.parametrize(
    "numbers", [[signal.SIGKILL, signal.SIGTERM], pytest.param([signal.SIGINT], marks=pytest.mark.slow)]
)
def test_a_command_that_gets_signals_can_be_resumed(numbers, tmp_path):
    path = write_files(tmp_path, training={"steps": 600, "save_every": 25}, evaluation={"every": 200})
    train(path, tmp_path / "expected")
    folder = tmp_path / "run"
    seed = random.randrange(2**32)
    print(f"random seed {seed}")
    steps = sorted(random.Random(seed).sample(range(30, 400), len(numbers)))
    command = [sys.executable, "-m", "kinfold", "train"]
    arguments = [str(path), "--out", str(folder)]
    for number, step in zip(numbers, steps, strict=True):
        # the process before may have gone further than its step: a signal must not come before this one has started
        logged = max((event["step"] for event in RunFolder(folder).read_events()), default=0)
        process = subprocess.Popen([*command, *arguments], env=ONE_THREAD, stderr=subprocess.PIPE, text=True)
        wait_for(folder, max(step, logged + 1))
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
        if number == signal.SIGKILL:
            assert process.returncode == -signal.SIGKILL
        else:
            assert process.returncode == 128 + number, errors
            assert f"continue with: kinfold train --resume {folder}" in errors
        arguments = ["--resume", str(folder)]
    finished = subprocess.run([*command, *arguments], env=ONE_THREAD, capture_output=True, text=True, timeout=120)
    assert finished.returncode == 0, finished.stderr
    assert difference(folder, tmp_path / "expected") == ""


@pytest.mark.parametrize("changed", [{}, {"ranks": 2}, {"packages": {"torch": "1.0"}}])
def test_resuming_in_another_environment_warns_and_is_recorded(tmp_path, changed, recwarn):
    with pytest.raises(Stopped):
        run("margin", tmp_path / "run", signal_at("step", 5, signal.SIGTERM))
    environment = tmp_path / "run" / "environment.json"
    about = {**json.loads(environment.read_text()), **changed}
    environment.write_text(json.dumps(about))
    resume_run("margin", tmp_path / "run")
    warned = [
        str(warning.message) for warning in recwarn if "is resumed in another environment" in str(warning.message)
    ]
    if not changed:
        assert not warned
        assert "resumed" not in json.loads(environment.read_text())
        return
    (message,) = warned
    assert "will not be bit for bit" in message
    (entry,) = json.loads(environment.read_text())["resumed"]
    assert entry["step"] == 5
    if "ranks" in changed:
        assert "ranks 2 -> 1" in message
        assert entry["changed"] == ["ranks 2 -> 1"]
