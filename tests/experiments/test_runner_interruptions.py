"""However a bench is ended, starting it again ends where one that was left alone ends, and nothing is made twice."""

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from kinfold.experiments import Bench, Interrupted, read_suite, run_bench
from kinfold.experiments.bench_folder import BenchFolder
from kinfold.experiments.workers.tasks import TaskResult, run_task
from tests.cli.runs import run as command
from tests.experiments.tiny import TWELVE_RUNS, Inline, read_results, run_inline, stat_scores, suite, write_suite

ROOT = Path(__file__).parent.parent.parent
PATIENCE = 300.0  # seconds after which something is taken for stuck


@contextmanager
def started(file, folder, jobs, *more):
    """The command in a process group of its own, which does not outlive the test."""
    arguments = [sys.executable, "-m", "kinfold", "bench", file, "--out", folder, "--jobs", jobs, *more]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [*map(str, arguments)],
        cwd=ROOT,
        env=environment,
        process_group=0,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def until(condition, what, process=None):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"waited too long for {what}"
        if process is not None and process.poll() is not None:
            return  # it ended before
        time.sleep(0.01)


def workers_of(process):
    """The process ids of the workers that a bench with this id started."""
    result = []
    for entry in Path("/proc").iterdir():
        try:
            arguments = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdecimal() else []
        except OSError:
            continue
        if b"kinfold.experiments.workers.process_main" in arguments and str(process).encode() in arguments:
            result.append(int(entry.name))
    return result


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """The suite of twelve runs (and eight looks at the test classes), and what it gives when nobody disturbs it."""
    folder = tmp_path_factory.mktemp("expected")
    file = write_suite(folder, **TWELVE_RUNS)
    state, names = run_inline(read_suite(file), folder / "bench")
    assert (state.completed, len(names), state.failed) == (20, 20, {})
    return file, read_results(folder / "bench")


def killed_and_continued(file, folder, jobs, kills, moment):
    """Kill as often as this at the moments that `moment(process)` waits for; then let it end. What was there before."""
    before = {}
    for number in range(kills + 1):
        with started(file, folder, jobs) as process:
            if number < kills:
                moment(process)
                process.kill()
            _, errors = process.communicate(timeout=PATIENCE)
            assert process.returncode in ((0, -signal.SIGKILL) if number < kills else (0,)), errors
            until(lambda: not workers_of(process.pid), "the end of the workers")
        now = stat_scores(folder)
        assert {name: now.get(name) for name in before} == before, "a finished run was made again"
        if number < kills:
            before = now
    return before


@pytest.mark.slow
def test_killed_when_it_works_and_continued_gives_the_same_results(tmp_path, expected):
    file, wanted = expected
    source = random.Random(0)

    def runs(folder):
        return {str(path) for path in folder.rglob("fold-*")} if folder.exists() else set()

    # A run takes a few hundredths of a second: where this process is late, the bench may be through before the kill.
    # Such an attempt must end alike too, but says little; another is made.
    for attempt in range(10):
        folder = tmp_path / f"bench-{attempt}"

        def moment(process, folder=folder):
            there = runs(folder)
            until(lambda: len(runs(folder)) >= len(there) + 2, "a run to begin after another", process)
            time.sleep(source.uniform(0, 0.05))

        finished = killed_and_continued(file, folder, 1, 2, moment)
        assert read_results(folder) == wanted
        if 0 < len(finished) < 12:
            return
    pytest.fail("the kills came too early or too late to mean anything")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_killed_at_any_moment_and_continued_gives_the_same_results(tmp_path, expected, seed):
    file, wanted = expected
    source, folder = random.Random(seed), tmp_path / "bench"

    def moment(process):
        time.sleep(source.uniform(0, 8))

    killed_and_continued(file, folder, 2, 6, moment)
    assert read_results(folder) == wanted


class KilledError(BaseException):
    """Ends a bench where it is, without any of the care that it takes of errors."""


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_around_every_run_gives_the_same_results(tmp_path, expected, when):
    """The folder as a kill leaves it between a run and the note that it was made."""
    file, wanted = expected
    folder, tiny_suite, ended = tmp_path / "bench", read_suite(file), []

    def once(task):
        if task.name in ended:
            return run_task(task)
        ended.append(task.name)
        if when == "after":
            assert run_task(task).succeeded
        raise KilledError

    while True:
        before = stat_scores(folder)
        try:
            run_inline(tiny_suite, folder, Inline(once))
        except KilledError:
            continue
        finally:
            assert {name: mark for name, mark in stat_scores(folder).items() if name in before} == before
        break
    assert len(ended) == 20
    assert read_results(folder) == wanted


def test_leftovers_of_a_killed_start_do_no_harm(tmp_path):
    folder = tmp_path / "bench"
    folder.mkdir()
    (folder / ".lock").touch()
    (folder / ".suite.toml.123.tmp").write_text('name = "ti')
    run_inline(suite(tmp_path), folder)
    (folder / "records" / "runs" / ".x.json.123.tmp").touch()
    run_inline(suite(tmp_path), folder)
    assert not [*folder.rglob("*.tmp")]


def test_a_lock_of_a_killed_search_is_not_waited_for(tmp_path, monkeypatch):
    folder = tmp_path / "bench"
    tiny_suite = suite(tmp_path, **TWELVE_RUNS)

    def killed(task):
        raise KilledError

    with pytest.raises(KilledError):
        run_inline(tiny_suite, folder, Inline(killed))
    os.symlink(folder / "search" / "journal.log", folder / "search" / "journal.log.lock")
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail("it waits"))
    state, _ = run_inline(tiny_suite, folder)
    assert state.completed == 20


def test_a_folder_that_was_moved_goes_on_with_the_trial_it_was_at(tmp_path, expected):
    file, wanted = expected
    tiny_suite = read_suite(file)

    def killed(task):
        raise KilledError

    with pytest.raises(KilledError):
        run_inline(tiny_suite, tmp_path / "here", Inline(killed))
    (tmp_path / "here").rename(tmp_path / "there")
    run_inline(tiny_suite, tmp_path / "there")
    assert read_results(tmp_path / "there") == wanted


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_the_bench_goes_on_to_the_same_results(tmp_path, expected, number):
    file, wanted = expected
    folder, count = tmp_path / "bench", []

    def disturbed(task):
        count.append(task.name)
        if len(count) == 5:
            os.kill(os.getpid(), number)
        return run_task(task)

    with pytest.raises(Interrupted):
        run_bench(read_suite(file), folder, lambda key: Inline(disturbed))
    before = stat_scores(folder)
    assert len(before) == 5
    run_inline(Bench.open(folder).suite, folder)
    assert read_results(folder) == wanted
    assert {name: stat_scores(folder)[name] for name in before} == before


@pytest.mark.slow
def test_ctrl_c_ends_the_command_with_130_and_saves_running_trainings(tmp_path, expected):
    """To the whole group, as a terminal sends it, in the middle of a training."""
    file, folder = expected[0], tmp_path / "bench"
    endless = [f"--set={key}=1000000" for key in ("training.steps", "evaluation.every")]
    with started(file, folder, 1, *endless, "--set=training.save_every=50") as process:
        until(lambda: [*folder.rglob("checkpoints/list.json")], "a checkpoint", process)
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, errors
    assert f"everything is saved; continue with: kinfold bench --resume {folder}" in errors
    assert not workers_of(process.pid)
    assert not [*(folder / "records").rglob("*.json")]  # neither done nor failed


def test_a_worker_that_is_terminated_is_replaced_and_its_run_continues(tmp_path, faults, capsys, monkeypatch):
    loss = {"name": "terminated", "mark": str(tmp_path / "mark")}
    file = write_suite(tmp_path, method=[{"name": "unlucky", "loss": loss}])
    code, _, errors = command(capsys, monkeypatch, "bench", file, "--out", tmp_path / "bench", "--jobs", 1)
    assert code == 0, errors
    assert (tmp_path / "mark").exists()
    assert len(read_results(tmp_path / "bench")) > 0


def test_two_benches_in_one_folder_are_refused(tmp_path, capsys, monkeypatch):
    file, folder = write_suite(tmp_path), tmp_path / "bench"
    other = "import sys, time; from kinfold.experiments.bench_folder import BenchFolder\n"
    other += "with BenchFolder(sys.argv[1]).lock(): print('held', flush=True); time.sleep(600)"
    process = subprocess.Popen([sys.executable, "-c", other, str(folder)], stdout=subprocess.PIPE)
    try:
        assert process.stdout.readline() == b"held\n"
        code, _, errors = command(capsys, monkeypatch, "bench", file, "--out", folder)
        assert code == 2
        assert f"another bench is running in {folder}; wait for it, or choose another folder with --out" in errors
        assert [path.name for path in folder.iterdir()] == [".lock"]
    finally:
        process.kill()
        process.communicate()
    assert run_inline(read_suite(file), folder)[0].completed == 2


def test_a_folder_that_is_no_bench_is_left_alone(tmp_path, capsys, monkeypatch):
    file, folder = write_suite(tmp_path), tmp_path / "photos"
    folder.mkdir()
    (folder / "wren.jpg").touch()
    code, _, errors = command(capsys, monkeypatch, "bench", file, "--out", folder)
    assert code == 2
    assert f"{folder} is not empty and not the folder of a bench; choose another with --out" in errors
    code, _, errors = command(capsys, monkeypatch, "bench", "--resume", folder)
    assert code == 2
    assert "is not the folder of a bench" in errors


def test_progress_counts_runs_of_an_earlier_start(tmp_path):
    tiny_suite, lines = suite(tmp_path, seeds=[0, 1]), []
    calls = []

    def fails_late(task):
        calls.append(task.name)
        return run_task(task) if len(calls) < 3 else TaskResult(task.name, 1.0, "tired")

    run_inline(tiny_suite, tmp_path / "bench", Inline(fails_late))

    def watch(state, outcome):
        lines.append((state.completed, state.reused, state.total, outcome and outcome.name))

    state, names = run_inline(tiny_suite, tmp_path / "bench", watch=watch)
    assert (state.completed, state.reused, state.total, state.failed) == (4, 2, 4, {})
    assert names == calls[2:]
    assert [name for *_, name in lines if name] == names
    assert BenchFolder(tmp_path / "bench").read_record(names[0])["error"] is None
