"""A cell that goes wrong is reported, stops nothing else, and is tried again; wrong input is refused before a start."""

import os
import signal
from importlib import import_module

import pytest

from kinfold.experiments import Bench, Interrupted, Processes, run_bench
from kinfold.experiments.bench_folder import BenchFolder, BenchRun
from kinfold.experiments.workers.tasks import TaskResult, run_task
from tests.cli.runs import run as command
from tests.experiments.tiny import TWELVE, Inline, made, marks, results, suite, suite_file, tables

MEMORY = "out of memory: take smaller batches, or run fewer cells at a time (--jobs)"
GOOD = {"name": "good"}


def faulty(name, **options):
    return {"name": name, "loss": {"name": name, **options}}


@pytest.mark.parametrize(
    ("fault", "why"), [("raising", "RuntimeError: no such luck"), ("out-of-memory", MEMORY), ("greedy", MEMORY)]
)
def test_a_cell_that_raises_is_reported_and_the_others_finish(tmp_path, faults, fault, why):
    given = suite(tmp_path, method=[faulty(fault), GOOD])
    state, _ = made(given, tmp_path / "bench")
    failed = f"runs/tiny/{fault}/seed-0/fold-0"
    assert state.failed == {failed: why}
    assert state.done == 2  # the good one, trained and tested
    bench = Bench.open(tmp_path / "bench")
    assert bench.failures == {failed: why}
    assert "Traceback" in bench.place.record(failed)["details"]
    assert f"failed: {why}" in bench.place.table.read_text()
    assert [row["error"] for row in results(tmp_path / "bench") if row["method"] == fault] == [why]
    assert {row["stage"] for row in results(tmp_path / "bench") if row["method"] == "good"} == {"train", "test"}


def test_a_worker_that_dies_is_reported_and_replaced(tmp_path, faults, capsys, monkeypatch):
    """Killed as the kernel does it where memory is short, and ended with an exit code, one after the other."""
    monkeypatch.setattr(import_module("kinfold.experiments.bench"), "ATTEMPTS", 1)  # the last one is what is reported
    file = suite_file(tmp_path, method=[faulty("killed"), faulty("leaving"), GOOD])
    folder = tmp_path / "bench"
    code, output, errors = command(capsys, monkeypatch, "bench", file, "--out", folder, "--jobs", 1)
    assert code == 1
    killed = "its process was ended by SIGKILL, most likely for want of memory: take smaller batches, or run fewer"
    assert f"failed: runs/tiny/killed/seed-0/fold-0: {killed} cells at a time (--jobs)" in errors
    left = f"its process ended with exit code 3; see {folder / 'log.txt'}"
    assert f"failed: runs/tiny/leaving/seed-0/fold-0: {left}" in errors
    assert "good" in output
    assert BenchFolder(folder).record("runs/tiny/good/seed-0")["error"] is None


def test_a_cell_whose_process_is_killed_once_is_tried_again_at_once(tmp_path, faults, capsys, monkeypatch):
    file = suite_file(tmp_path, method=[faulty("killed-once", mark=str(tmp_path / "mark"))])
    code, _, errors = command(capsys, monkeypatch, "bench", file, "--out", tmp_path / "bench", "--jobs", 1)
    assert code == 0, errors
    assert (tmp_path / "mark").exists()
    assert "runs/tiny/killed-once/seed-0/fold-0, tried again: its process was ended by SIGKILL" in errors
    assert "failed" not in errors


def losing(times, part):
    """Workers that lose tasks with this in their names so often."""
    counts = {}

    def perform_or_lose(task):
        counts[task.name] = counts.get(task.name, 0) + (part in task.name)
        if 0 < counts[task.name] <= times:
            return TaskResult(task.name, 0.0, "its process was ended by SIGKILL", lost=True)
        return run_task(task)

    return Inline(perform_or_lose)


def test_a_killed_worker_costs_its_method_no_trial(tmp_path):
    """Killed in the search, in a repeat and in the test: everything is as if nobody had been killed."""
    given = suite(tmp_path, **{**TWELVE, "seeds": [0]})
    state, names = made(given, tmp_path / "bench", losing(2, "contrastive"))
    assert state.failed == {}
    assert names.count("search/tiny/contrastive/trial-0/fold-0") == 3
    made(given, tmp_path / "alone")
    assert results(tmp_path / "bench") == results(tmp_path / "alone")
    completed = "completed trials of the search: contrastive 2/2, triplet 2/2"
    bench = Bench.open(tmp_path / "bench")
    assert completed in bench.summary().splitlines()
    assert completed in bench.place.table.read_text().splitlines()


def test_a_trial_that_is_lost_every_time_is_left_for_the_next_start(tmp_path):
    given, folder = suite(tmp_path, **{**TWELVE, "seeds": [0]}), tmp_path / "bench"
    state, names = made(given, folder, losing(3, "contrastive/trial-1"))
    assert "was lost 3 times: its process was ended by SIGKILL" in state.failed["tiny, contrastive"]
    assert names.count("search/tiny/contrastive/trial-1/fold-0") == 3
    assert not [name for name in names if name.startswith("runs/tiny/contrastive")]  # not with fewer trials than others
    bench = Bench.open(folder)
    told = "completed trials of the search: contrastive 1/2, triplet 2/2; NOT EQUAL: compare these methods with care"
    assert told in bench.summary().splitlines()
    state, _ = made(given, folder)
    assert state.failed == {}
    made(given, tmp_path / "alone")
    assert results(folder) == results(tmp_path / "alone")


def test_a_trial_that_fails_by_itself_counts(tmp_path):
    given = suite(tmp_path, **{**TWELVE, "seeds": [0]})

    def fails(task):
        return TaskResult(task.name, 0.0, "no") if "contrastive/trial-0" in task.name else run_task(task)

    _, names = made(given, tmp_path / "bench", Inline(fails))
    assert names.count("search/tiny/contrastive/trial-0/fold-0") == 1
    searches = Bench.open(tmp_path / "bench").searches
    assert (searches["tiny", "contrastive"].completed, searches["tiny", "contrastive"].failed) == (1, 1)
    assert (searches["tiny", "triplet"].completed, searches["tiny", "triplet"].failed) == (2, 0)


def test_a_hanging_cell_is_ended_after_the_timeout_and_tried_again(tmp_path, faults):
    """It does not react to SIGTERM, so that it takes a SIGKILL."""
    given = suite(tmp_path, method=[faulty("hanging-once", mark=str(tmp_path / "mark"))])
    workers, lost = [], []

    def started(place):
        workers.append(Processes(1, 1, place.log, timeout=1000, grace=0.1))
        return workers[0]

    def watch(state, outcome):
        if outcome is not None and outcome.lost:
            lost.append(outcome.error)
        # short while it hangs only: on a busy machine a healthy cell may take long as well
        workers[0].timeout = 0.25 if (tmp_path / "mark").exists() and not lost else 1000

    state = run_bench(given, tmp_path / "bench", started, watch=watch)
    assert lost == ["it made no progress for 0.25 seconds and was ended; --timeout allows more"]
    assert (state.done, state.failed) == (2, {})


def test_a_bench_that_is_stopped_ends_a_worker_that_ignores_sigterm(tmp_path, faults):
    given = suite(tmp_path, method=[faulty("hanging-once", mark=str(tmp_path / "mark"))])
    workers = []

    def started(place):
        workers.append(Processes(1, 1, place.log, grace=0.5))
        return workers[0]

    def watch(state, outcome):
        if (tmp_path / "mark").exists():
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted):
        run_bench(given, tmp_path / "bench", started, watch=watch)
    assert not [*(tmp_path / "bench" / "records").rglob("*.json")]  # neither done nor failed
    state, _ = made(given, tmp_path / "bench")
    assert (state.done, state.failed) == (2, {})


@pytest.mark.parametrize("timeout", [0.0, -1.0, float("nan"), float("inf")])
def test_a_timeout_that_is_none_is_refused(tmp_path, timeout):
    with pytest.raises(ValueError, match="timeout must be a number of seconds above 0"):
        Processes(1, 1, tmp_path / "log.txt", timeout=timeout)


def test_only_what_failed_is_tried_again(tmp_path):
    given, folder = suite(tmp_path, method=[{"name": "unlucky"}, GOOD], seeds=[0, 1]), tmp_path / "bench"

    def once(task):
        return TaskResult(task.name, 0.0, "bad luck") if "unlucky/seed-1" in task.name else run_task(task)

    state, _ = made(given, folder, Inline(once))
    assert list(state.failed) == ["runs/tiny/unlucky/seed-1/fold-0"]
    before = marks(folder)
    state, names = made(given, folder)
    assert names == ["runs/tiny/unlucky/seed-1/fold-0", "runs/tiny/unlucky/seed-1"]
    assert (state.failed, state.done, state.total) == ({}, 8, 8)
    assert {name: marks(folder)[name] for name in before} == before
    alone, _ = made(given, tmp_path / "alone")
    assert alone.failed == {}
    assert results(folder) == results(tmp_path / "alone")


def test_a_test_that_fails_is_tried_again_without_its_training(tmp_path):
    given, folder = suite(tmp_path), tmp_path / "bench"
    made(
        given, folder, Inline(lambda task: run_task(task) if task.kind == "train" else TaskResult(task.name, 0.0, "no"))
    )
    assert Bench.open(folder).failures == {"runs/tiny/contrastive/seed-0": "no"}
    assert made(given, folder)[1] == ["runs/tiny/contrastive/seed-0"]


def test_a_mended_method_sets_aside_what_failed_and_succeeds(tmp_path, faults):
    folder = tmp_path / "bench"
    made(suite(tmp_path, method=[faulty("raising"), GOOD]), folder)
    before = marks(folder)
    mended = suite(tmp_path, method=[{"name": "raising"}, GOOD])
    state, names = made(mended, folder)
    assert (state.failed, names) == ({}, ["runs/tiny/raising/seed-0/fold-0", "runs/tiny/raising/seed-0"])
    kept = folder / "runs/tiny/raising/seed-0/fold-0.failed-1"
    assert 'name = "raising"' in (kept / "configuration.toml").read_text()
    assert {name: marks(folder)[name] for name in before} == before
    made(mended, tmp_path / "alone")
    assert results(folder) == results(tmp_path / "alone")


def test_a_mended_cell_that_was_made_but_not_noted_is_not_made_again(tmp_path, faults):
    """The kill comes between the last file of the cell and the note of the bench."""
    folder = tmp_path / "bench"
    made(suite(tmp_path, method=[faulty("raising")]), folder)
    mended = suite(tmp_path, method=[{"name": "raising"}])

    def killed(task):
        assert run_task(task).done
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        made(mended, folder, Inline(killed))
    before = marks(folder)
    assert len(before) == 1
    state, _ = made(mended, folder)
    assert state.failed == {}
    assert {name: marks(folder)[name] for name in before} == before


def test_a_search_whose_trials_all_failed_is_reported_every_time_and_can_be_mended(tmp_path, faults):
    folder = tmp_path / "bench"
    search = {"optimizer.lr": {"low": 0.001, "high": 0.1}}
    broken = suite(tmp_path, method=[{**faulty("raising"), "search": search}, GOOD], trials=2)
    for start in range(2):
        state, names = made(broken, folder)
        assert "all of them failed" in state.failed["tiny, raising"]
        assert len(names) == (4 if start == 0 else 0)  # two trials; the good one trained and tested
    mended = suite(tmp_path, method=[{"name": "raising", "search": search}, GOOD], trials=2)
    state, names = made(mended, folder)
    assert state.failed == {}
    assert len(names) == 4
    made(mended, tmp_path / "alone")
    assert results(folder) == results(tmp_path / "alone")


CHANGED = {
    "without a search": ({}, {"training": {"steps": 5}}),
    "settings beside the search": ({"trials": 2}, {"training": {"steps": 5}}),
    "space of the search": ({"trials": 2}, {"search": {"optimizer.lr": {"low": 0.002, "high": 0.1}}}),
}


@pytest.mark.parametrize("what", CHANGED)
def test_other_settings_for_a_finished_cell_are_refused_before_anything_is_begun(tmp_path, what):
    more, change = CHANGED[what]
    folder, search = tmp_path / "bench", {"search": {"optimizer.lr": {"low": 0.001, "high": 0.1}}}
    made(suite(tmp_path, base=search, **more), folder)
    before, text = marks(folder), (folder / "suite.toml").read_text()
    other = suite(tmp_path, base={**search, **change}, method=[{"name": "new"}, {"name": "contrastive"}], **more)
    workers = Inline()
    with pytest.raises(ValueError, match="is finished, but with other settings than the suite has now"):
        made(other, folder, workers)
    assert workers.made == []
    assert (marks(folder), (folder / "suite.toml").read_text()) == (before, text)


def test_a_finished_cell_that_was_moved_away_is_made_anew(tmp_path):
    folder = tmp_path / "bench"
    made(suite(tmp_path), folder)
    (folder / "runs/tiny/contrastive/seed-0").rename(tmp_path / "away")
    assert Bench.open(folder).rows == []
    state, names = made(suite(tmp_path, base={"training": {"steps": 5}}), folder)
    assert (len(names), state.failed) == (2, {})
    assert {row["steps"] for row in results(folder) if row["stage"] == "train"} == {"5"}


def test_a_repeat_of_which_a_fold_was_made_anew_is_tested_anew(tmp_path):
    folder = tmp_path / "bench"
    made(suite(tmp_path), folder)
    (folder / "runs/tiny/contrastive/seed-0/fold-0").rename(tmp_path / "away")
    other = suite(tmp_path, base={"optimizer": {"lr": 0.3}})
    assert len(made(other, folder)[1]) == 2
    made(other, tmp_path / "alone")
    assert results(folder) == results(tmp_path / "alone")


def test_a_bench_can_grow_by_methods_seeds_and_data(tmp_path):
    folder = tmp_path / "bench"
    made(suite(tmp_path), folder)
    data = tables(tmp_path)["data"]
    more = {"method": [{"name": "contrastive"}, GOOD], "seeds": [0, 1], "data": [*data, {**data[0], "name": "again"}]}
    state, names = made(suite(tmp_path, **more), folder)
    assert (state.kept, len(names), state.failed) == (2, 14, {})


WRONG = {
    "loss": ({"method": [{"name": "a", "loss": {"name": "contrastve"}}]}, "did you mean 'contrastive'?"),
    "data": ({"data": [{"name": "a", "data": {"name": "featurs"}}]}, "did you mean 'features'?"),
    "protocol": ({"protocol": "clasic"}, "unknown protocol 'clasic' (did you mean 'classic'?"),
    "metric": ({"base": {"evaluation": {"metrics": ["map@r", "recal@1"]}}}, "did you mean 'recall@"),
    "compared metric": ({"metric": "nmi"}, "the suite compares nmi, which is not among evaluation.metrics"),
    "baseline": ({"baseline": "contrastiv"}, "is no method (did you mean 'contrastive'?); there are contrastive"),
    "recipe": (
        {"method": [{"name": "a", "recipe": "featurs"}]},
        "recipe 'featurs' not found (did you mean 'features'?",
    ),
    "key": ({"sedes": [1]}, "unknown key 'sedes' at the top (did you mean 'seeds'?"),
    "setting": ({"base": {"training": {"stepps": 1}}}, "did you mean 'steps'?"),
    "methods of one name": ({"method": [GOOD, GOOD]}, "two [[method]] are called 'good'; give each its own name"),
    "name of a method": ({"method": [{"name": "../a"}]}, "every [[method]] needs a name of letters"),
    "no method": ({"method": []}, "a suite needs at least one [[method]]"),
    "equal seeds": ({"seeds": [1, 1]}, "seeds must be different whole numbers, at least one; got [1, 1]"),
    "seed of searches": ({"seeds": [10_000]}, "the seed 10000 is that of searches"),
    "trials": ({"trials": -1}, "trials must be 0 or more, got -1"),
    "space": ({"base": {"search": {"optimizer.lr": 3}}}, "search: 'optimizer.lr' must be a table, got 3"),
    "range": ({"base": {"search": {"optimizer.lr": {"low": 2, "high": 1}}}}, "needs two numbers low < high"),
    "key of a space": ({"base": {"search": {"optimizer.lr": {"lo": 1, "high": 2}}}}, "did you mean 'low'?"),
    "setting of a space": (
        {"base": {"search": {"optimizer.lrr": {"values": [1.0]}}}},
        "unknown key 'lrr' in [optimizer] (did you mean 'lr'?",
    ),
    "value of a space": ({"base": {"search": {"optimizer.lr": {"values": [0.1, -1.0]}}}}, "optimizer.lr must be a num"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_suite_says_how_to_mend_it(tmp_path, capsys, monkeypatch, what):
    changes, message = WRONG[what]
    file = suite_file(tmp_path, **changes)
    code, _, errors = command(capsys, monkeypatch, "bench", file, "--out", tmp_path / "bench")
    assert code == 2
    assert message in errors
    assert not (tmp_path / "bench").exists()


def test_missing_files_are_told_before_anything_is_begun(tmp_path, capsys, monkeypatch):
    file = suite_file(tmp_path)
    (tmp_path / "tiny.npz").unlink()
    code, _, errors = command(capsys, monkeypatch, "bench", file, "--out", tmp_path / "bench")
    assert code == 2
    assert f"tiny: there is no {tmp_path / 'tiny.npz'}; say where it is with --root tiny=" in errors
    code, _, errors = command(capsys, monkeypatch, "bench", tmp_path / "none.toml")
    assert (code, "there is no suite" in errors) == (2, True)
    assert not (tmp_path / "bench").exists()


WRONG_OPTIONS = {
    "root of unknown data": (["--root", "tny=x"], "there is no data 'tny'"),
    "root without a name": (["--root", "x"], "--root looks like cub=photos/cub, got 'x'"),
    "change": (["--set", "training.stepps=3"], "did you mean 'steps'?"),
    "jobs": (["--jobs", "0"], "jobs must be at least 1, got 0"),
    "threads": (["--threads", "0"], "threads must be at least 1, got 0"),
    "resume and a suite": (["--resume", "x"], "--resume goes on with a bench as it was begun: give the folder alone"),
}


@pytest.mark.parametrize("what", WRONG_OPTIONS)
def test_wrong_options_are_told(tmp_path, capsys, monkeypatch, what):
    options, message = WRONG_OPTIONS[what]
    code, _, errors = command(capsys, monkeypatch, "bench", suite_file(tmp_path), "--out", tmp_path / "bench", *options)
    assert code == 2
    assert message in errors


def test_data_that_cannot_be_read_fails_its_cells_only(tmp_path):
    (tmp_path / "broken.npz").write_bytes(b"nothing of use")
    data = tables(tmp_path)["data"]
    broken = {"name": "broken", "data": {"name": "features", "root": str(tmp_path / "broken.npz")}}
    state, _ = made(suite(tmp_path, data=[broken, *data]), tmp_path / "bench")
    assert list(state.failed) == ["runs/broken/contrastive/seed-0/fold-0"]
    assert "broken.npz" in next(iter(state.failed.values()))
    assert state.done == 2


def test_processes_need_room_for_one_at_least(tmp_path):
    for jobs, threads in ((0, 1), (1, 0)):
        with pytest.raises(ValueError, match="must be at least 1"):
            Processes(jobs, threads, tmp_path / "log.txt")


def test_a_folder_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="choose a folder you may write to"):
        run_bench(suite(tmp_path), tmp_path / "file" / "bench", lambda place: Inline())


def test_cells_have_readable_names():
    assert str(BenchRun("cub", "margin", 3, 1)) == "cub, margin, seed 3, fold 1"
    assert BenchRun("cub", "margin", 3, 1, trial=2).name == "search/cub/margin/trial-2/fold-1"
