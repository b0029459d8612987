"""A run that goes wrong is reported, stops nothing else, and is tried again; wrong input is refused before a start."""

import os
import signal
from importlib import import_module

import pytest

from kinfold.experiments import Bench, Interrupted, Processes, run_bench
from kinfold.experiments.bench_folder import BenchFolder, BenchRun
from kinfold.experiments.workers.tasks import TaskResult, run_task
from tests.cli.runs import run as command
from tests.experiments.tiny import (
    TWELVE_RUNS,
    Inline,
    read_results,
    run_inline,
    stat_scores,
    suite,
    tables,
    write_suite,
)

MEMORY = "out of memory: use smaller batches, or fewer runs at a time (--jobs)"
GOOD = {"name": "good"}


def faulty(name, **options):
    return {"name": name, "loss": {"name": name, **options}}


@pytest.mark.parametrize(
    ("fault", "why"), [("raising", "RuntimeError: no such luck"), ("out-of-memory", MEMORY), ("greedy", MEMORY)]
)
def test_a_run_that_raises_is_reported_and_the_others_finish(tmp_path, faults, fault, why):
    tiny_suite = suite(tmp_path, method=[faulty(fault), GOOD])
    state, _ = run_inline(tiny_suite, tmp_path / "bench")
    failed = f"runs/tiny/{fault}/seed-0/fold-0"
    assert state.failed == {failed: why}
    assert state.completed == 2  # the good one, trained and tested
    bench = Bench.open(tmp_path / "bench")
    assert bench.failures == {failed: why}
    assert "Traceback" in bench.bench_folder.read_record(failed)["details"]
    assert f"failed: {why}" in bench.bench_folder.table.read_text()
    assert [row["error"] for row in read_results(tmp_path / "bench") if row["method"] == fault] == [why]
    assert {row["stage"] for row in read_results(tmp_path / "bench") if row["method"] == "good"} == {"train", "test"}


@pytest.mark.slow
def test_a_worker_that_dies_is_reported_and_replaced(tmp_path, faults, capsys, monkeypatch):
    """Killed as the kernel does it where memory is short, and ended with an exit code, one after the other."""
    monkeypatch.setattr(import_module("kinfold.experiments.runner"), "ATTEMPTS", 1)  # the last one is what is reported
    file = write_suite(tmp_path, method=[faulty("killed"), faulty("leaving"), GOOD])
    folder = tmp_path / "bench"
    code, output, errors = command(capsys, monkeypatch, "bench", file, "--out", folder, "--jobs", 1)
    assert code == 1
    killed = "its process was killed by SIGKILL, most likely because memory ran out: use smaller batches, or fewer"
    assert f"failed: runs/tiny/killed/seed-0/fold-0: {killed} runs at a time (--jobs)" in errors
    left = f"its process ended with exit code 3; see {folder / 'log.txt'}"
    assert f"failed: runs/tiny/leaving/seed-0/fold-0: {left}" in errors
    assert "good" in output
    assert BenchFolder(folder).read_record("runs/tiny/good/seed-0")["error"] is None


@pytest.mark.slow
def test_a_run_whose_process_is_killed_once_is_tried_again_at_once(tmp_path, faults, capsys, monkeypatch):
    file = write_suite(tmp_path, method=[faulty("killed-once", mark=str(tmp_path / "mark"))])
    code, _, errors = command(capsys, monkeypatch, "bench", file, "--out", tmp_path / "bench", "--jobs", 1)
    assert code == 0, errors
    assert (tmp_path / "mark").exists()
    assert "runs/tiny/killed-once/seed-0/fold-0, tried again: its process was killed by SIGKILL" in errors
    assert "failed" not in errors


def losing(times, part):
    """Workers that lose tasks with this in their names so often."""
    counts = {}

    def perform_or_lose(task):
        counts[task.name] = counts.get(task.name, 0) + (part in task.name)
        if 0 < counts[task.name] <= times:
            return TaskResult(task.name, 0.0, "its process was killed by SIGKILL", lost=True)
        return run_task(task)

    return Inline(perform_or_lose)


def test_a_killed_worker_costs_its_method_no_trial(tmp_path):
    """Killed in the search, in a repeat and in the test: everything is as if nobody had been killed."""
    tiny_suite = suite(tmp_path, **{**TWELVE_RUNS, "seeds": [0]})
    state, names = run_inline(tiny_suite, tmp_path / "bench", losing(2, "contrastive"))
    assert state.failed == {}
    assert names.count("search/tiny/contrastive/trial-0/fold-0") == 3
    run_inline(tiny_suite, tmp_path / "alone")
    assert read_results(tmp_path / "bench") == read_results(tmp_path / "alone")
    completed = "completed trials of the search: contrastive 2/2, triplet 2/2"
    bench = Bench.open(tmp_path / "bench")
    assert completed in bench.summary().splitlines()
    assert completed in bench.bench_folder.table.read_text().splitlines()


def test_a_trial_that_is_lost_every_time_is_left_for_the_next_start(tmp_path):
    tiny_suite, folder = suite(tmp_path, **{**TWELVE_RUNS, "seeds": [0]}), tmp_path / "bench"
    state, names = run_inline(tiny_suite, folder, losing(3, "contrastive/trial-1"))
    assert "was lost 3 times: its process was killed by SIGKILL" in state.failed["tiny, contrastive"]
    assert names.count("search/tiny/contrastive/trial-1/fold-0") == 3
    assert not [name for name in names if name.startswith("runs/tiny/contrastive")]  # not with fewer trials than others
    bench = Bench.open(folder)
    lines = "completed trials of the search: contrastive 1/2, triplet 2/2; NOT EQUAL: compare these methods with care"
    assert lines in bench.summary().splitlines()
    state, _ = run_inline(tiny_suite, folder)
    assert state.failed == {}
    run_inline(tiny_suite, tmp_path / "alone")
    assert read_results(folder) == read_results(tmp_path / "alone")


def test_a_trial_that_fails_by_itself_counts(tmp_path):
    tiny_suite = suite(tmp_path, **{**TWELVE_RUNS, "seeds": [0]})

    def fails(task):
        return TaskResult(task.name, 0.0, "no") if "contrastive/trial-0" in task.name else run_task(task)

    _, names = run_inline(tiny_suite, tmp_path / "bench", Inline(fails))
    assert names.count("search/tiny/contrastive/trial-0/fold-0") == 1
    searches = Bench.open(tmp_path / "bench").searches
    assert (searches["tiny", "contrastive"].completed, searches["tiny", "contrastive"].failed) == (1, 1)
    assert (searches["tiny", "triplet"].completed, searches["tiny", "triplet"].failed) == (2, 0)


@pytest.mark.slow
def test_a_hanging_run_is_ended_after_the_timeout_and_tried_again(tmp_path, faults):
    """It does not react to SIGTERM, so that it takes a SIGKILL."""
    tiny_suite = suite(tmp_path, method=[faulty("hanging-once", mark=str(tmp_path / "mark"))])
    workers, lost = [], []

    def started(key):
        workers.append(Processes(1, 1, key.log, timeout=1000, grace=0.1))
        return workers[0]

    def watch(state, outcome):
        if outcome is not None and outcome.lost:
            lost.append(outcome.error)
        # short while it hangs only: on a busy machine a healthy run may take long as well
        workers[0].timeout = 0.25 if (tmp_path / "mark").exists() and not lost else 1000

    state = run_bench(tiny_suite, tmp_path / "bench", started, watch=watch)
    assert lost == ["it made no progress for 0.25 seconds and was ended; --timeout allows more"]
    assert (state.completed, state.failed) == (2, {})


def test_a_bench_that_is_stopped_ends_a_worker_that_ignores_sigterm(tmp_path, faults):
    tiny_suite = suite(tmp_path, method=[faulty("hanging-once", mark=str(tmp_path / "mark"))])
    workers = []

    def started(key):
        workers.append(Processes(1, 1, key.log, grace=0.5))
        return workers[0]

    def watch(state, outcome):
        if (tmp_path / "mark").exists():
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted):
        run_bench(tiny_suite, tmp_path / "bench", started, watch=watch)
    assert not [*(tmp_path / "bench" / "records").rglob("*.json")]  # neither done nor failed
    state, _ = run_inline(tiny_suite, tmp_path / "bench")
    assert (state.completed, state.failed) == (2, {})


@pytest.mark.parametrize("timeout", [0.0, -1.0, float("nan"), float("inf")])
def test_an_invalid_timeout_is_an_error(tmp_path, timeout):
    with pytest.raises(ValueError, match="timeout must be a number of seconds above 0"):
        Processes(1, 1, tmp_path / "log.txt", timeout=timeout)


def test_only_what_failed_is_tried_again(tmp_path):
    tiny_suite, folder = suite(tmp_path, method=[{"name": "unlucky"}, GOOD], seeds=[0, 1]), tmp_path / "bench"

    def once(task):
        return TaskResult(task.name, 0.0, "bad luck") if "unlucky/seed-1" in task.name else run_task(task)

    state, _ = run_inline(tiny_suite, folder, Inline(once))
    assert list(state.failed) == ["runs/tiny/unlucky/seed-1/fold-0"]
    before = stat_scores(folder)
    state, names = run_inline(tiny_suite, folder)
    assert names == ["runs/tiny/unlucky/seed-1/fold-0", "runs/tiny/unlucky/seed-1"]
    assert (state.failed, state.completed, state.total) == ({}, 8, 8)
    assert {name: stat_scores(folder)[name] for name in before} == before
    alone, _ = run_inline(tiny_suite, tmp_path / "alone")
    assert alone.failed == {}
    assert read_results(folder) == read_results(tmp_path / "alone")


def test_a_test_that_fails_is_tried_again_without_its_training(tmp_path):
    tiny_suite, folder = suite(tmp_path), tmp_path / "bench"
    run_inline(
        tiny_suite,
        folder,
        Inline(lambda task: run_task(task) if task.kind == "train" else TaskResult(task.name, 0.0, "no")),
    )
    assert Bench.open(folder).failures == {"runs/tiny/contrastive/seed-0": "no"}
    assert run_inline(tiny_suite, folder)[1] == ["runs/tiny/contrastive/seed-0"]


def test_a_corrected_method_sets_aside_what_failed_and_succeeds(tmp_path, faults):
    folder = tmp_path / "bench"
    run_inline(suite(tmp_path, method=[faulty("raising"), GOOD]), folder)
    before = stat_scores(folder)
    corrected = suite(tmp_path, method=[{"name": "raising"}, GOOD])
    state, names = run_inline(corrected, folder)
    assert (state.failed, names) == ({}, ["runs/tiny/raising/seed-0/fold-0", "runs/tiny/raising/seed-0"])
    failed_run = folder / "runs/tiny/raising/seed-0/fold-0.failed-1"
    assert 'name = "raising"' in (failed_run / "configuration.toml").read_text()
    assert {name: stat_scores(folder)[name] for name in before} == before
    run_inline(corrected, tmp_path / "alone")
    assert read_results(folder) == read_results(tmp_path / "alone")


def test_a_corrected_run_that_was_trained_but_not_recorded_is_not_trained_again(tmp_path, faults):
    """The kill comes between the last file of the run and the note of the bench."""
    folder = tmp_path / "bench"
    run_inline(suite(tmp_path, method=[faulty("raising")]), folder)
    corrected = suite(tmp_path, method=[{"name": "raising"}])

    def killed(task):
        assert run_task(task).succeeded
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_inline(corrected, folder, Inline(killed))
    before = stat_scores(folder)
    assert len(before) == 1
    state, _ = run_inline(corrected, folder)
    assert state.failed == {}
    assert {name: stat_scores(folder)[name] for name in before} == before


def test_a_search_whose_trials_all_failed_is_reported_every_time_and_can_be_corrected(tmp_path, faults):
    folder = tmp_path / "bench"
    search = {"optimizer.lr": {"low": 0.001, "high": 0.1}}
    broken = suite(tmp_path, method=[{**faulty("raising"), "search": search}, GOOD], trials=2)
    for start in range(2):
        state, names = run_inline(broken, folder)
        assert "all of them failed" in state.failed["tiny, raising"]
        assert len(names) == (4 if start == 0 else 0)  # two trials; the good one trained and tested
    corrected = suite(tmp_path, method=[{"name": "raising", "search": search}, GOOD], trials=2)
    state, names = run_inline(corrected, folder)
    assert state.failed == {}
    assert len(names) == 4
    run_inline(corrected, tmp_path / "alone")
    assert read_results(folder) == read_results(tmp_path / "alone")


CHANGED = {
    "without a search": ({}, {"training": {"steps": 5}}),
    "settings beside the search": ({"trials": 2}, {"training": {"steps": 5}}),
    "space of the search": ({"trials": 2}, {"search": {"optimizer.lr": {"low": 0.002, "high": 0.1}}}),
}


@pytest.mark.parametrize("what", CHANGED)
def test_other_settings_for_a_finished_run_are_refused_before_the_start(tmp_path, what):
    more, change = CHANGED[what]
    folder, search = tmp_path / "bench", {"search": {"optimizer.lr": {"low": 0.001, "high": 0.1}}}
    run_inline(suite(tmp_path, base=search, **more), folder)
    before, text = stat_scores(folder), (folder / "suite.toml").read_text()
    other = suite(tmp_path, base={**search, **change}, method=[{"name": "new"}, {"name": "contrastive"}], **more)
    workers = Inline()
    with pytest.raises(ValueError, match="is finished, but with other settings than the suite has now"):
        run_inline(other, folder, workers)
    assert workers.task_names == []
    assert (stat_scores(folder), (folder / "suite.toml").read_text()) == (before, text)


def test_a_finished_run_that_was_moved_away_is_trained_again(tmp_path):
    folder = tmp_path / "bench"
    run_inline(suite(tmp_path), folder)
    (folder / "runs/tiny/contrastive/seed-0").rename(tmp_path / "away")
    assert Bench.open(folder).rows == []
    state, names = run_inline(suite(tmp_path, base={"training": {"steps": 5}}), folder)
    assert (len(names), state.failed) == (2, {})
    assert {row["steps"] for row in read_results(folder) if row["stage"] == "train"} == {"5"}


def test_a_repeat_with_a_new_fold_is_tested_again(tmp_path):
    folder = tmp_path / "bench"
    run_inline(suite(tmp_path), folder)
    (folder / "runs/tiny/contrastive/seed-0/fold-0").rename(tmp_path / "away")
    other = suite(tmp_path, base={"optimizer": {"lr": 0.3}})
    assert len(run_inline(other, folder)[1]) == 2
    run_inline(other, tmp_path / "alone")
    assert read_results(folder) == read_results(tmp_path / "alone")


def test_a_bench_can_grow_by_methods_seeds_and_data(tmp_path):
    folder = tmp_path / "bench"
    run_inline(suite(tmp_path), folder)
    data = tables(tmp_path)["data"]
    more = {"method": [{"name": "contrastive"}, GOOD], "seeds": [0, 1], "data": [*data, {**data[0], "name": "again"}]}
    state, names = run_inline(suite(tmp_path, **more), folder)
    assert (state.reused, len(names), state.failed) == (2, 14, {})


WRONG = {
    "loss": ({"method": [{"name": "a", "loss": {"name": "contrastve"}}]}, "did you mean 'contrastive'?"),
    "data": ({"data": [{"name": "a", "data": {"name": "featurs"}}]}, "did you mean 'features'?"),
    "protocol": ({"protocol": "clasic"}, "unknown protocol 'clasic'\nhelp: did you mean 'classic'?"),
    "metric": ({"base": {"evaluation": {"metrics": ["map@r", "recal@1"]}}}, "did you mean 'recall@"),
    "compared metric": ({"metric": "nmi"}, "the suite compares nmi, which is not among evaluation.metrics"),
    "baseline": (
        {"baseline": "contrastiv"},
        "is no method\nhelp: did you mean 'contrastive'?\nhelp: there are contrastive",
    ),
    "recipe": (
        {"method": [{"name": "a", "recipe": "featurs"}]},
        "recipe 'featurs' not found\nhelp: did you mean 'features'?",
    ),
    "key": ({"sedes": [1]}, "unknown key 'sedes' at the top\nhelp: did you mean 'seeds'?"),
    "setting": ({"base": {"training": {"stepps": 1}}}, "did you mean 'steps'?"),
    "methods of one name": ({"method": [GOOD, GOOD]}, "two [[method]] are called 'good'; give each its own name"),
    "name of a method": ({"method": [{"name": "../a"}]}, "every [[method]] needs a name of letters"),
    "no method": ({"method": []}, "a suite needs at least one [[method]]"),
    "equal seeds": ({"seeds": [1, 1]}, "seeds must be different integers, at least one; got [1, 1]"),
    "seed of searches": ({"seeds": [10_000]}, "the seed 10000 is reserved for searches"),
    "trials": ({"trials": -1}, "trials must be 0 or more, got -1"),
    "space": ({"base": {"search": {"optimizer.lr": 3}}}, "search: 'optimizer.lr' must be a table, got 3"),
    "range": ({"base": {"search": {"optimizer.lr": {"low": 2, "high": 1}}}}, "needs two numbers low < high"),
    "key of a space": ({"base": {"search": {"optimizer.lr": {"lo": 1, "high": 2}}}}, "did you mean 'low'?"),
    "setting of a space": (
        {"base": {"search": {"optimizer.lrr": {"values": [1.0]}}}},
        "unknown key 'lrr' in [optimizer]\nhelp: did you mean 'lr'?",
    ),
    "value of a space": (
        {"base": {"search": {"optimizer.lr": {"values": [0.1, -1.0]}}}},
        "optimizer.lr must be at least 0, got -1.0",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_an_error_in_a_suite_says_what_to_do(tmp_path, capsys, monkeypatch, what):
    changes, message = WRONG[what]
    file = write_suite(tmp_path, **changes)
    code, _, errors = command(capsys, monkeypatch, "bench", file, "--out", tmp_path / "bench")
    assert code == 2
    assert message in errors
    assert not (tmp_path / "bench").exists()


def test_missing_files_are_reported_before_the_start(tmp_path, capsys, monkeypatch):
    file = write_suite(tmp_path)
    (tmp_path / "tiny.npz").unlink()
    code, _, errors = command(capsys, monkeypatch, "bench", file, "--out", tmp_path / "bench")
    assert code == 2
    assert f"tiny: there is no {tmp_path / 'tiny.npz'}; say where it is with --root tiny=" in errors
    code, _, errors = command(capsys, monkeypatch, "bench", tmp_path / "none.toml")
    assert (code, "there is no suite" in errors) == (2, True)
    assert not (tmp_path / "bench").exists()


WRONG_OPTIONS = {
    "root of unknown data": (["--root", "tny=x"], "there is no data 'tny'"),
    "root without a name": (["--root", "x"], "--root must look like cub=photos/cub, got 'x'"),
    "change": (["--set", "training.stepps=3"], "did you mean 'steps'?"),
    "jobs": (["--jobs", "0"], "jobs must be at least 1, got 0"),
    "threads": (["--threads", "0"], "threads must be at least 1, got 0"),
    "resume and a suite": (["--resume", "x"], "--resume continues a bench with its own suite: give only the folder"),
}


@pytest.mark.parametrize("what", WRONG_OPTIONS)
def test_wrong_options_are_reported(tmp_path, capsys, monkeypatch, what):
    options, message = WRONG_OPTIONS[what]
    code, _, errors = command(
        capsys, monkeypatch, "bench", write_suite(tmp_path), "--out", tmp_path / "bench", *options
    )
    assert code == 2
    assert message in errors


def test_unreadable_data_fails_only_its_runs(tmp_path):
    (tmp_path / "broken.npz").write_bytes(b"nothing of use")
    data = tables(tmp_path)["data"]
    broken = {"name": "broken", "data": {"name": "features", "root": str(tmp_path / "broken.npz")}}
    state, _ = run_inline(suite(tmp_path, data=[broken, *data]), tmp_path / "bench")
    assert list(state.failed) == ["runs/broken/contrastive/seed-0/fold-0"]
    assert "broken.npz" in next(iter(state.failed.values()))
    assert state.completed == 2


def test_processes_need_at_least_one_job_and_thread(tmp_path):
    for jobs, threads in ((0, 1), (1, 0)):
        with pytest.raises(ValueError, match="must be at least 1"):
            Processes(jobs, threads, tmp_path / "log.txt")


def test_a_folder_without_write_access_is_reported(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="choose a folder you may write to"):
        run_bench(suite(tmp_path), tmp_path / "file" / "bench", lambda key: Inline())


def test_runs_have_readable_names():
    assert str(BenchRun("cub", "margin", 3, 1)) == "cub, margin, seed 3, fold 1"
    assert BenchRun("cub", "margin", 3, 1, trial=2).name == "search/cub/margin/trial-2/fold-1"
