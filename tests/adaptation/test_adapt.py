"""`kinfold.adapt`: the ladder on small sets, what it returns, and what it refuses."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import kinfold
from kinfold.adaptation import Adaptation
from kinfold.adaptation.candidates import STEPS
from kinfold.adaptation.plan import PLANS, AdaptationPlan, TrialTimes, estimate_seconds, make_plan
from kinfold.data import Rows, create_dataset
from tests.adaptation.problems import noisy_classes, shuffled

SMALL = AdaptationPlan(repeats=2, head_repeats=2, head_steps=20, race=3, residual=True, max_rows=3000, threads=1)
LINEAR = AdaptationPlan(repeats=3, head_repeats=0, head_steps=0, race=0, residual=False, max_rows=3000, threads=1)


@pytest.fixture
def plan(monkeypatch):
    """Use a plan instead of a trial, so that tests do not depend on the speed of the machine."""

    def use(chosen):
        monkeypatch.setattr("kinfold.adaptation.launch.run_trial", lambda *_: TrialTimes(1.0, 1.0, 1.0))
        monkeypatch.setattr("kinfold.adaptation.launch.make_plan", lambda *_: chosen)

    return use


def with_test_classes(rows, labels, test):
    split = np.where(np.isin(labels, test), "test", "train")
    return create_dataset("points", Rows(rows), labels, split)


def test_a_better_space_is_found_fitted_to_all_training_classes_and_measured_on_test_classes(tmp_path, plan):
    plan(SMALL)
    rows, labels = noisy_classes(classes=24)
    dataset = with_test_classes(rows, labels, range(16, 24))
    adaptation = kinfold.adapt(dataset, folder=tmp_path / "run")
    assert adaptation.improved
    assert adaptation.test["recall@1"]["gain"] > 0.1
    assert adaptation.test["recall@1"]["low"] > 0
    assert "Use the adapted space" in adaptation.verdict
    assert "On the test classes" in adaptation.verdict
    run = adaptation.run
    assert run.finished
    assert run.scores["test"]["recall@1"] == pytest.approx(adaptation.test["recall@1"]["adapted"])
    assert run.scores["classes"]["train"] == 16
    again = Adaptation.open(tmp_path / "run")
    assert again.table() == adaptation.table()
    assert len(adaptation.table().splitlines()) == 2 + len(STEPS)
    lengths = adaptation.embed(rows[:5]).norm(dim=1)
    assert torch.allclose(lengths, torch.ones(5))


def test_taken_steps_are_significant_and_the_others_are_not(tmp_path, plan):
    plan(SMALL)
    adaptation = kinfold.adapt(*noisy_classes(), tmp_path / "run")
    tested = adaptation.steps[1:]
    assert [row.taken for row in tested] == [row.p < row.level and not row.lower for row in tested]
    assert adaptation.winner == [row.step for row in tested if row.taken][-1]


@pytest.mark.parametrize("lost", [0.0, 0.1])
def test_a_step_that_lowers_a_metric_below_the_input_is_not_taken(lost, tmp_path, plan, monkeypatch):
    from kinfold.adaptation.measuring import Measurer

    def pretend(self, split, candidates):
        jitter = split.number / 1000
        gained = {"recall@1": 0.8 - lost + (-1) ** split.number * jitter, "map@r": 0.9 + jitter}
        return {each.name: {"recall@1": 0.8, "map@r": 0.4} if each.kind is None else gained for each in candidates}

    plan(LINEAR)
    monkeypatch.setattr(Measurer, "measure_linear", pretend)
    adaptation = kinfold.adapt(*noisy_classes(), tmp_path / "run")
    row = adaptation.steps[1]
    assert row.p < row.level
    assert [*row.lower] == (["recall@1"] if lost else [])
    assert adaptation.improved != bool(lost)
    assert ("no: lower recall@1" in adaptation.table()) == bool(lost)


@pytest.mark.parametrize("shuffles", [3, pytest.param(20, marks=pytest.mark.slow)])
def test_shuffled_labels_return_the_input_space_in_the_words_that_training_does_not_help(tmp_path, plan, shuffles):
    plan(LINEAR)
    returned = 0
    for seed in range(shuffles):
        adaptation = kinfold.adapt(*shuffled(seed), tmp_path / str(seed), seed=seed)
        if not adaptation.improved:
            returned += 1
            assert adaptation.verdict.startswith("Training does not help")
            rows = shuffled(seed)[0]
            expected = torch.nn.functional.normalize(torch.from_numpy(rows))
            assert torch.allclose(adaptation.embed(rows), expected, atol=1e-6)
    assert returned >= shuffles - 1


@pytest.mark.slow
def test_shuffled_labels_return_the_input_space_with_trained_heads_too(tmp_path, plan):
    plan(SMALL)
    results = [kinfold.adapt(*shuffled(seed), tmp_path / str(seed), seed=seed).improved for seed in range(20)]
    assert sum(results) <= 1


@pytest.mark.parametrize("classes", [1, 2, 7])
def test_too_few_classes_return_the_input_space_with_the_reason(tmp_path, classes):
    rows, labels = noisy_classes(classes)
    adaptation = kinfold.adapt(rows, labels, tmp_path / "run")
    assert "too few to hold some out" in adaptation.verdict
    assert not adaptation.improved
    assert adaptation.run.config.model.head == "identity"
    assert kinfold.adapt(rows, labels, tmp_path / "run").verdict == adaptation.verdict


def test_classes_of_one_row_are_no_classes_to_hold_out(tmp_path):
    rows, labels = noisy_classes(classes=30, per_class=1)
    assert "only 0 of 30 training classes have two rows" in kinfold.adapt(rows, labels, tmp_path / "run").verdict


def test_few_rows_of_many_columns_and_names_as_labels_work(tmp_path, plan):
    plan(LINEAR)
    rows, labels = noisy_classes(classes=10, per_class=5, width=64)
    names = np.array([f"class {label}" for label in labels])
    adaptation = kinfold.adapt(rows, names, tmp_path / "run")
    assert adaptation.embed(rows).shape[0] == 50
    assert "no time for the linear head and the residual head" in adaptation.verdict


@pytest.mark.slow
def test_a_killed_adaptation_continues_and_ends_as_it_would_have(tmp_path, plan, monkeypatch):
    plan(SMALL)
    rows, labels = noisy_classes()
    whole = kinfold.adapt(rows, labels, tmp_path / "whole")
    from kinfold.adaptation.measuring import Measurer

    measure, calls = Measurer.measure_head, []

    def fail_at_times(self, *arguments):
        calls.append(1)
        if len(calls) in (2, 9, 30):
            raise KeyboardInterrupt
        return measure(self, *arguments)

    monkeypatch.setattr(Measurer, "measure_head", fail_at_times)
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            kinfold.adapt(rows, labels, tmp_path / "killed")
    killed = kinfold.adapt(rows, labels, tmp_path / "killed")
    for first, second in zip(whole.steps, killed.steps, strict=True):
        assert repr(replace(first, seconds=0.0)) == repr(replace(second, seconds=0.0))
    assert whole.verdict == killed.verdict
    weights = [adaptation.run.model().state_dict() for adaptation in (whole, killed)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    before = len(calls)
    kinfold.adapt(rows, labels, tmp_path / "killed")  # finished: nothing is measured again
    assert len(calls) == before


def test_other_data_or_settings_in_the_same_folder_are_refused(tmp_path, plan):
    plan(LINEAR)
    rows, labels = noisy_classes()
    kinfold.adapt(rows, labels, tmp_path / "run")
    with pytest.raises(ValueError, match="the data is not what"):
        kinfold.adapt(rows + 1, labels, tmp_path / "run")
    with pytest.raises(ValueError, match="begun with another seed"):
        kinfold.adapt(rows, labels, tmp_path / "run", seed=3)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("")
    with pytest.raises(ValueError, match="is not empty"):
        kinfold.adapt(rows, labels, tmp_path / "other")


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((np.zeros((4, 2)),), {}, r"give the class of each item"),
        ((np.zeros((4, 2)), [0, 0, 1, 1]), {"minutes": 0}, "minutes must be greater than 0"),
        ((np.full((4, 2), np.nan), [0, 0, 1, 1]), {}, "NaN or infinite"),
    ],
)
def test_wrong_input_is_refused_with_the_reason(tmp_path, arguments, options, message):
    with pytest.raises(ValueError, match=message):
        kinfold.adapt(*arguments, folder=tmp_path / "run", **options)


def test_a_plan_fits_into_its_minutes_and_more_minutes_never_plan_less():
    times = TrialTimes(split=1.5, step=0.01, overhead=0.4)
    plans = [make_plan(times, minutes, 3000, 1) for minutes in (0.1, 1, 5, 20, 100)]
    assert plans[0].head_steps == 0
    assert [plan.head_steps for plan in plans] == sorted(plan.head_steps for plan in plans)
    assert all(
        estimate_seconds(times, plan) == plan.seconds <= 60 * minutes
        for plan, minutes in zip(plans[1:], (1, 5, 20, 100), strict=True)
    )


def test_a_slow_machine_leaves_time_for_heads_before_it_repeats_linear_maps():
    slow = TrialTimes(split=15.0, step=0.025, overhead=2.0)  # five times the times of CUB on a free core
    plan = make_plan(slow, 5, 3000, 1)
    assert plan.repeats == 2
    assert plan.head_steps > 0


def test_the_trial_makes_a_plan_that_is_stored(tmp_path):
    adaptation = kinfold.adapt(*noisy_classes(), tmp_path / "run", minutes=0.001)
    from kinfold.adaptation.folder import AdaptationFolder

    stored = AdaptationFolder(tmp_path / "run").read_plan()
    assert stored["plan"]["head_steps"] == 0
    assert stored["trial"]["step"] > 0
    assert adaptation.run.finished


def test_a_plan_by_name_does_not_depend_on_the_machine(tmp_path, monkeypatch):
    from kinfold.adaptation.folder import AdaptationFolder

    slow = TrialTimes(split=1e3, step=1e3, overhead=1e3)
    monkeypatch.setattr("kinfold.adaptation.launch.run_trial", lambda *_: slow)
    monkeypatch.setitem(PLANS, "quick", replace(PLANS["quick"], head_steps=8, race=2))
    rows, labels = noisy_classes()
    adaptation = kinfold.adapt(rows, labels, tmp_path / "run", plan="quick")
    assert adaptation.steps[-1].note == "skipped: not in the plan quick"
    assert "The plan quick leaves out the residual head." in adaptation.verdict
    assert "time" not in adaptation.verdict
    stored = AdaptationFolder(tmp_path / "run").read_plan()
    assert (stored["plan"]["head_steps"], stored["plan"]["race"], stored["budget"]) == (8, 2, "quick")
    with pytest.raises(ValueError, match="minutes or a plan"):
        kinfold.adapt(rows, labels, tmp_path / "other", plan="quick", minutes=3)
    with pytest.raises(ValueError, match="did you mean 'quick'"):
        kinfold.adapt(rows, labels, tmp_path / "other", plan="quik")


def test_a_busy_machine_is_named_where_there_was_no_time(tmp_path, plan, monkeypatch):
    plan(LINEAR)
    monkeypatch.setattr("kinfold.adaptation.launch.run_trial", lambda *_: TrialTimes(1.0, 1.0, 1.0, busy=3.0))
    adaptation = kinfold.adapt(*noisy_classes(), tmp_path / "run")
    assert "Other processes used the machine, so that everything took 3.0 times as long" in adaptation.verdict


def test_later_repeats_measure_what_a_half_of_the_classes_keeps(tmp_path, plan):
    plan(LINEAR)
    kinfold.adapt(*noisy_classes(), tmp_path / "run")
    records = tmp_path / "run" / "adaptation" / "records"
    measured = [{*json.loads((records / f"linear-{number}.json").read_text())["value"]} for number in range(12)]
    assert all(names == measured[0] for names in measured[:4])
    assert all(names == measured[4] for names in measured[4:])
    assert "as given" in measured[4] < measured[0]
    assert len(measured[4]) <= 1 + 3 * 2 * 3


def test_the_time_of_a_measurement_counts_once_however_often_it_is_read(tmp_path):
    from kinfold.adaptation.folder import AdaptationFolder
    from kinfold.adaptation.recording import Recorder

    folder = AdaptationFolder(tmp_path / "run")
    folder.prepare()
    for _ in range(2):  # of the process that measured, and of one that continues
        recorder = Recorder(folder, ("recall@1",), lambda *_: None)
        assert [recorder.remember("a", lambda: 3) for _ in range(3)] == [3, 3, 3]
        assert recorder.seconds == json.loads((folder.records / "a.json").read_text())["seconds"] > 0
