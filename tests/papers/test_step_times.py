"""Times of training steps are kept, so that a stopped command continues."""

import pytest

from kinfold.papers import step_times
from kinfold.papers.plan import PlanOptions, plan_table
from kinfold.papers.step_times import StepTimer
from tests.papers.tables import table


@pytest.fixture
def timed(monkeypatch):
    """Lists the batch sizes of every group that is timed; the n-th row takes n seconds."""
    groups, count = [], iter(range(1, 100))

    def measure(configs, dataset):
        groups.append([config.sampler.options["batch_size"] for config in configs])
        return [float(next(count)) for _ in configs]

    monkeypatch.setattr(step_times, "_measure_seconds", measure)
    return groups


@pytest.fixture
def groups(small):
    rows = ("lifted@80", "lifted@160", "dro-kl-margin@80", "dro-kl-margin@160")
    settings = plan_table(table("dro/runtime"), PlanOptions(rows=rows, small=small)).settings["in-shop"]
    return [{name: settings[name] for name in rows if name.endswith(size)} for size in ("@80", "@160")]


def test_times_are_measured_once(timed, groups, small, tmp_path):
    first = StepTimer(tmp_path, small.dataset, 1).measure(groups)
    assert first == {"lifted@80": 1.0, "dro-kl-margin@80": 2.0, "lifted@160": 3.0, "dro-kl-margin@160": 4.0}
    assert StepTimer(tmp_path, small.dataset, 1).measure(groups) == first
    assert len(timed) == 2


def test_a_stopped_measurement_continues_with_the_next_group(timed, groups, small, tmp_path):
    StepTimer(tmp_path, small.dataset, 1).measure(groups[:1])
    assert StepTimer(tmp_path, small.dataset, 1).measure(groups)["lifted@80"] == 1.0
    assert timed == [[80, 80], [100, 100]]


def test_other_settings_or_threads_are_timed_again(timed, groups, small, tmp_path):
    StepTimer(tmp_path, small.dataset, 1).measure(groups)
    changed = {**groups[0], "lifted@80": {**groups[0]["lifted@80"], "loss": {"name": "lifted", "margin": 0.5}}}
    # rows of a group take turns, so that the whole group is timed again
    assert StepTimer(tmp_path, small.dataset, 1).measure([changed, groups[1]]) == {
        "lifted@80": 5.0,
        "dro-kl-margin@80": 6.0,
        "lifted@160": 3.0,
        "dro-kl-margin@160": 4.0,
    }
    StepTimer(tmp_path, small.dataset, 2).measure(groups)
    assert len(timed) == 5


def test_a_file_that_was_changed_is_refused(timed, groups, small, tmp_path):
    StepTimer(tmp_path, small.dataset, 1).measure(groups)
    path = tmp_path / step_times.FILE
    path.write_text(path.read_text().replace("1.0", "0.5", 1))
    with pytest.raises(ValueError, match="is damaged"):
        StepTimer(tmp_path, small.dataset, 1).measure(groups)
