"""A search tries as many settings as it was given, the same whether it was killed or not, by one machine or two."""

import multiprocessing
import os
import signal

import pytest

from kinfold.experiments.search.space import Categorical, Range, list_corners, parse_search_space
from kinfold.experiments.search.study import Study

TABLE = {
    "optimizer.lr": {"low": 1e-5, "high": 1e-1, "log": True},
    "loss.k": {"low": 10, "high": 90, "int": True},
    "loss.name": {"values": ["dro-topk", "dro-kl"]},
}


def study(storage, trials=12, metric="map@r", worker="one", table=TABLE):
    return Study("birds/margin", table, trials, metric, storage, worker)


def value_of(values):
    """Best at k = 50 with dro-kl."""
    return (1.0 if values["loss.name"] == "dro-kl" else 0.5) - abs(values["loss.k"] - 50) / 100


def searched(search):
    while search.remaining:
        trial = search.ask()
        search.tell(trial, value_of(trial.values))
    return search


def history(search):
    return [(trial.number, trial.values, value) for trial, value in search.history()]


def test_the_budget_is_kept_and_the_best_is_the_best(tmp_path):
    search = searched(study(tmp_path / "journal.log"))
    tried = history(search)
    assert [number for number, _, _ in tried] == [*range(12)]
    assert (search.remaining, search.completed, search.ask()) == (0, 12, None)
    number, values, _ = max(tried, key=lambda entry: entry[2])
    assert (search.best().number, search.best().values) == (number, values)
    for _, values, _ in tried:
        assert 1e-5 <= values["optimizer.lr"] <= 1e-1
        assert values["loss.k"] in range(10, 91)
        assert values["loss.name"] in ("dro-topk", "dro-kl")
    assert len({values["optimizer.lr"] for _, values, _ in tried}) == 12


def test_trials_are_reproducible_and_differ_by_the_name_of_the_study(tmp_path):
    first, second = (history(searched(study(tmp_path / name))) for name in "ab")
    assert first == second
    other = Study("cars/margin", TABLE, 12, "map@r", tmp_path / "c")
    assert history(searched(other)) != first


def test_a_study_that_is_reopened_before_every_call_is_the_same(tmp_path):
    """As after a kill between any two of them."""
    for _ in range(12):
        trial = study(tmp_path / "killed").ask()
        assert study(tmp_path / "killed").ask() == trial  # it was not finished: it is given out again
        study(tmp_path / "killed").tell(trial, value_of(trial.values))
    assert study(tmp_path / "killed").remaining == 0
    assert history(study(tmp_path / "killed")) == history(searched(study(tmp_path / "alone")))


def killed_at_write(path, number):
    """Search until the given write to the journal, and die there."""
    from optuna.storages.journal import JournalFileBackend

    write, count = JournalFileBackend.append_logs, []

    def append(self, logs):
        if len(count) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        count.append(None)
        write(self, logs)

    JournalFileBackend.append_logs = append
    searched(study(path, trials=4))


def test_a_study_killed_at_any_write_continues_with_the_same_trials(tmp_path):
    expected = history(searched(study(tmp_path / "alone", trials=4)))
    fork = multiprocessing.get_context("fork")
    for number in range(100):
        process = fork.Process(target=killed_at_write, args=(tmp_path / f"{number}", number))
        process.start()
        process.join()
        assert history(searched(study(tmp_path / f"{number}", trials=4))) == expected
        if process.exitcode == 0:
            break
        assert process.exitcode == -signal.SIGKILL
    assert number > 8  # a study, and four trials that begin and end


def test_reading_writes_nothing(tmp_path):
    searched(study(tmp_path / "journal.log"))
    before = (tmp_path / "journal.log").read_bytes()
    search = study(tmp_path / "journal.log")
    assert (len(search.history()), search.remaining, search.ask()) == (12, 0, None)
    assert (tmp_path / "journal.log").read_bytes() == before


def test_two_workers_share_a_data_base_and_its_budget(tmp_path):
    storage = f"sqlite:///{tmp_path / 'study.db'}"
    one, two = (study(storage, trials=7, worker=name) for name in ("one", "two"))
    plan = {"one": [], "two": []}
    while one.remaining:
        both = [("one", one, one.ask()), ("two", two, two.ask())]  # at the same time
        assert None in [trial for *_, trial in both] or both[0][2].number != both[1][2].number
        for name, search, trial in both:
            if trial is not None:
                plan[name].append(trial.number)
                search.tell(trial, value_of(trial.values))
    assert sorted(plan["one"] + plan["two"]) == [*range(7)]
    assert min(map(len, plan.values())) >= 3
    assert one.best() == two.best()
    assert history(one) == history(two)


def test_a_trial_of_another_worker_is_waited_for_not_taken_over(tmp_path):
    storage = f"sqlite:///{tmp_path / 'study.db'}"
    one, two = (study(storage, trials=1, worker=name) for name in ("one", "two"))
    trial = one.ask()
    assert (two.ask(), two.remaining) == (None, 1)
    one.tell(trial, 0.5)
    assert (two.remaining, two.best().values) == (0, trial.values)


def test_a_failed_trial_counts(tmp_path):
    search = study(tmp_path / "journal.log", trials=3)
    for number in range(3):
        trial = search.ask()
        search.tell(trial, 0.25 if number == 1 else None)
    assert (search.remaining, search.completed, search.ask()) == (0, 1, None)
    assert search.best().number == 1
    assert [value for _, _, value in history(search)] == [None, 0.25, None]


def test_a_search_without_any_value_says_so(tmp_path):
    search = study(tmp_path / "journal.log", trials=2)
    for _ in range(2):
        search.tell(search.ask(), None)
    with pytest.raises(ValueError, match="no trial of birds/margin has a value: all of them failed"):
        search.best()


@pytest.mark.parametrize(("metric", "best"), [("map@r", 2), ("eer", 1)])
def test_best_is_the_smallest_where_less_is_better_and_the_first_of_equals(tmp_path, metric, best):
    search = study(tmp_path / "journal.log", trials=5, metric=metric)
    for value in (0.5, 0.1, 0.9, 0.1, 0.9):
        search.tell(search.ask(), value)
    assert search.best().number == best


@pytest.mark.parametrize(("metric", "wanted"), [("recall@1", 90), ("eer", 10)])
def test_the_search_goes_where_the_metric_gets_better(tmp_path, metric, wanted):
    table = {"loss.k": {"low": 10, "high": 90, "int": True}}
    search = study(tmp_path / "journal.log", trials=40, metric=metric, table=table)
    while search.remaining:
        trial = search.ask()
        search.tell(trial, trial.values["loss.k"] / 100)
    late = [values["loss.k"] for _, values, _ in history(search)[20:]]
    assert abs(sum(late) / len(late) - wanted) < 20


def test_a_study_needs_something_to_search(tmp_path):
    with pytest.raises(ValueError, match="has nothing to search: its recipe has no table `search`"):
        study(tmp_path / "journal.log", table={})


def test_a_space_is_read_with_its_kinds():
    assert parse_search_space(TABLE) == {
        "optimizer.lr": Range(1e-5, 1e-1, log=True),
        "loss.k": Range(10, 90, integer=True),
        "loss.name": Categorical(("dro-topk", "dro-kl")),
    }
    assert list_corners({}) == []


WRONG = {
    "no table": (3, "must be a table, got 3"),
    "unknown key": ({"low": 1, "hight": 2}, "has no key 'hight' .did you mean 'high'"),
    "values and more": ({"values": [1], "low": 0}, "must be a non-empty list and the only key"),
    "no values": ({"values": []}, "must be a non-empty list and the only key"),
    "values are no list": ({"values": 3}, "must be a non-empty list and the only key"),
    "no high": ({"low": 1}, "needs two numbers low < high"),
    "turned round": ({"low": 2, "high": 1}, "needs two numbers low < high"),
    "strings": ({"low": "a", "high": "b"}, "needs two numbers low < high"),
    "infinite": ({"low": 0.0, "high": float("inf")}, "needs two numbers low < high"),
    "truth": ({"low": False, "high": True}, "needs two numbers low < high"),
    "fraction": ({"low": 0.5, "high": 3, "int": True}, r"needs two integers low < high"),
    "logarithm of zero": ({"low": 0, "high": 1, "log": True}, "is logarithmic: low must be above 0, got 0"),
    "log": ({"low": 1, "high": 2, "log": "yes"}, "log and int are true or false, got 'yes'"),
}


@pytest.mark.parametrize("what", WRONG)
def test_an_error_in_a_search_space_says_how_to_write_it(what):
    entry, message = WRONG[what]
    with pytest.raises(ValueError, match=f"search: 'loss.k'.*{message}"):
        parse_search_space({"loss.k": entry})
