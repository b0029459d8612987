"""A bench searches for every method with the same budget, before its repeats, and uses what it found."""

import json

import pytest

from kinfold.experiments import Bench
from kinfold.experiments.bench_folder import BenchFolder
from kinfold.experiments.schedule import open_study
from kinfold.experiments.suite import SEARCH_SEED
from kinfold.experiments.workers.tasks import TaskResult, run_task
from kinfold.files.documents import write_result
from kinfold.training import Run
from kinfold.training.run_folder import RunFolder
from tests.experiments.tiny import SPACE, TWELVE_RUNS, Inline, read_results, run_inline, suite

ONE = [{"name": "contrastive", "search": SPACE}]


def history(bench, method):
    return open_study(bench.suite, bench.bench_folder, "tiny", method, None).history()


def validation(bench, method, number):
    """The mean over the folds, from the files of the runs."""
    result = []
    for fold in range(4):
        run = Run.open(bench.bench_folder.path / f"search/tiny/{method}/trial-{number}/fold-{fold}")
        assert run.config.seed == SEARCH_SEED
        assert run.config.evaluation.diagnose == "never"
        result.append(run.scores["validation"]["map@r"])
    return sum(result) / 4


@pytest.mark.parametrize("method", ["contrastive", "triplet"])
def test_trials_are_judged_by_the_mean_over_the_folds(bench, method):
    tried = history(bench, method)
    assert [trial.number for trial, _ in tried] == [0, 1]  # equal budgets
    for trial, value in tried:
        assert value == pytest.approx(validation(bench, method, trial.number), abs=1e-15)


@pytest.mark.parametrize("method", ["contrastive", "triplet"])
def test_the_repeats_have_the_settings_of_the_best_trial(bench, method):
    best, value = max(history(bench, method), key=lambda entry: entry[1])
    assert value == max(value for _, value in history(bench, method))
    for seed in (0, 1):
        for fold in range(4):
            config = Run.open(bench.bench_folder.path / f"runs/tiny/{method}/seed-{seed}/fold-{fold}").config
            assert config.optimizer.lr == best.values["optimizer.lr"]
            assert config.loss.options.get("margin") == best.values.get("loss.margin")
            assert (config.seed, config.data.fold, config.search) == (seed, fold, None)


def test_trials_may_be_shorter_than_repeats(tmp_path):
    tiny_suite = suite(tmp_path, method=ONE, trials=1, trial_steps=2)
    run_inline(tiny_suite, tmp_path / "bench")
    trial = Run.open(tmp_path / "bench/search/tiny/contrastive/trial-0/fold-0").config
    repeat = Run.open(tmp_path / "bench/runs/tiny/contrastive/seed-0/fold-0").config
    assert trial.training.steps == 2 != repeat.training.steps
    assert Bench.open(tmp_path / "bench").searches["tiny", "contrastive"].completed == 1


def test_a_method_without_a_space_is_not_searched(tmp_path):
    _, names = run_inline(suite(tmp_path, method=[*ONE, {"name": "plain"}], trials=1), tmp_path / "bench")
    assert sum(name.startswith("search/tiny/contrastive") for name in names) == 1
    assert sorted(name for name in names if "plain" in name) == [
        "runs/tiny/plain/seed-0",
        "runs/tiny/plain/seed-0/fold-0",
    ]


def test_searches_never_see_the_test_classes(bench):
    for path in (bench.bench_folder.path / "search").rglob("scores.json"):
        assert "test" not in json.loads(path.read_text())
        assert set(Run.open(path.parent).splits()) == {"train", "validation"}


def test_a_failed_trial_counts_and_is_reported(tmp_path):
    tiny_suite = suite(tmp_path, **TWELVE_RUNS)

    def unlucky(task):
        return TaskResult(task.name, 0.0, "bad luck") if "contrastive/trial-0" in task.name else run_task(task)

    state, names = run_inline(tiny_suite, tmp_path / "bench", Inline(unlucky))
    assert len(names) == 20  # no trial more than without the failure
    assert list(state.failed) == ["search/tiny/contrastive/trial-0/fold-0"]
    bench = Bench.open(tmp_path / "bench")
    assert [value is None for _, value in history(bench, "contrastive")] == [True, False]
    lr = Run.open(tmp_path / "bench/runs/tiny/contrastive/seed-0/fold-0").config.optimizer.lr
    assert lr == history(bench, "contrastive")[1][0].values["optimizer.lr"]


def test_a_trial_without_a_number_in_one_fold_has_failed(tmp_path):
    tiny_suite = suite(tmp_path, method=ONE, trials=2, protocol="reality-check")

    def undefined(task):
        outcome = run_task(task)
        if task.name.endswith("trial-1/fold-2"):
            scores = RunFolder(task.folder).read_scores()
            scores["validation"]["map@r"] = None
            write_result(task.folder / "scores.json", scores)
        return outcome

    run_inline(tiny_suite, tmp_path / "bench", Inline(undefined))
    assert [value is None for _, value in history(Bench.open(tmp_path / "bench"), "contrastive")] == [False, True]


def test_where_less_is_better_the_least_is_best(tmp_path):
    metrics = {"evaluation": {"metrics": ["eer", "map@r"], "metric": "eer"}}
    tiny_suite = suite(tmp_path, method=ONE, trials=4, base=metrics, metric="eer")
    run_inline(tiny_suite, tmp_path / "bench")
    bench = Bench.open(tmp_path / "bench")
    values = [value for _, value in history(bench, "contrastive")]
    best = history(bench, "contrastive")[values.index(min(values))][0]
    lr = Run.open(tmp_path / "bench/runs/tiny/contrastive/seed-0/fold-0").config.optimizer.lr
    assert lr == best.values["optimizer.lr"]
    assert len({*values}) > 1
    assert bench.compare("tiny", "separated").smaller_is_better


def test_two_benches_share_a_storage_and_its_budget(tmp_path):
    """Two machines: each makes some of the trials, both use the best of all."""
    settings, storage = suite(tmp_path, method=ONE, trials=5), f"sqlite:///{tmp_path / 'study.db'}"
    begun = []

    def helped(task):
        """While the first makes its second trial, the second machine makes two of its own."""
        if "trial-1" in task.name and not begun:
            begun.append(task.name)
            other = open_study(settings, BenchFolder(tmp_path / "helper"), "tiny", "contrastive", storage)
            for _ in range(2):
                other.tell(other.ask(), 0.0)
        return run_task(task)

    run_inline(settings, tmp_path / "first", Inline(helped), storage=storage)
    result = sorted(path.name for path in (tmp_path / "first/search/tiny/contrastive").iterdir())
    assert result == ["trial-0", "trial-1", "trial-4"]
    state, names = run_inline(settings, tmp_path / "second", storage=storage)
    assert state.failed == {}
    assert names == ["runs/tiny/contrastive/seed-0/fold-0", "runs/tiny/contrastive/seed-0"]
    final_rows = [
        [row for row in read_results(tmp_path / name) if row["stage"] != "search"] for name in ("first", "second")
    ]
    assert final_rows[0] == final_rows[1]


def test_a_search_in_a_database_is_not_started_again_in_a_file(tmp_path):
    settings, storage = suite(tmp_path, method=ONE, trials=1), f"sqlite:///{tmp_path / 'study.db'}"
    run_inline(settings, tmp_path / "bench", storage=storage)
    with pytest.raises(ValueError, match="is in a database: give --storage"):
        run_inline(settings, tmp_path / "bench")
