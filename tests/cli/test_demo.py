"""`kinfold demo` as it is typed: what it prints, and what it says meanwhile where nobody watches a terminal."""

import pytest

from kinfold import demo
from kinfold.cli.demo_progress import Lines
from tests.cli.runs import run

ROWS = [
    demo.DemoRow("margin", [{"recall@1": 0.83, "map@r": 0.57}, {"recall@1": 0.87, "map@r": 0.63}]),
    demo.DemoRow(demo.PIXELS, [{"recall@1": 0.49, "map@r": 0.21}]),
]


class Clock:
    """Seconds that pass when somebody says so."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def lines(capsys):
    """(what tells, the clock, what was printed since the last look)"""
    clock = Clock()
    return Lines(["a", "b", "c"], ", kept", clock), clock, lambda: capsys.readouterr().err.splitlines()


def test_runs_are_numbered_and_say_how_long_the_rest_takes(lines):
    tell, clock, told = lines
    tell("a", 0.0)
    assert told() == ["run 1 of 3: a"]
    for share in (0.5, 1.0):
        clock.now += 5
        tell("a", share)
    assert told() == []
    clock.now += 30  # of other work
    tell("b", 0.0)
    assert told() == ["run 2 of 3: b (about 20 s of training left)"]


def test_a_long_stage_is_told_of_again(lines):
    tell, clock, told = lines
    tell("a", 0.0)
    clock.now += 19
    tell("a", 0.1)
    assert told() == ["run 1 of 3: a"]
    clock.now += 11
    tell("a", 0.2)
    tell("a", 0.21)
    assert told() == ["run 1 of 3: a, 20 % (about 7 min of training left)"]
    tell("map", 0.0)
    clock.now += 25
    tell("map", 0.5)
    tell("map", 1.0)
    assert told() == ["map", "map, 50 %"]


def test_a_run_that_was_trained_before_takes_no_time(lines):
    tell, clock, told = lines
    for share in (0.0, 1.0):
        tell("a, kept", share)
    tell("b", 0.0)
    clock.now += 10
    tell("b", 1.0)
    tell("c", 0.0)
    assert told() == ["run 1 of 3: a, kept", "run 2 of 3: b", "run 3 of 3: c (about 10 s of training left)"]


def test_numbers_are_printed_with_what_they_are(tmp_path, capsys, monkeypatch):
    def made(out, steps, tell):
        tell(demo.run_names()[0] + demo.KEPT, 1.0)
        return ROWS

    def collected(out, progress):
        progress("pictures", 0.0)
        return {}

    monkeypatch.setattr("kinfold.demo.demo", made)
    monkeypatch.setattr("kinfold.report.collect_content", collected)
    monkeypatch.setattr("kinfold.report.write_page", lambda content, path: path)
    code, printed, errors = run(capsys, monkeypatch, "demo", "--out", tmp_path)
    assert code == 0
    assert "characters never seen in training: mean (range of 2 seeds)" in printed
    assert "85.0 (83.0 to 87.0)" in printed
    assert "the report gives the same means with 95 % intervals" in printed
    assert errors.splitlines() == ["run 1 of 8: dro-topk, seed 0, already trained", "pictures"]
