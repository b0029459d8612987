"""`kinfold demo`: what it prints, and its progress without a terminal."""

import pytest

from kinfold import demo
from kinfold.cli.demo_progress import ProgressLines
from tests.cli.runs import run

ROWS = [
    demo.DemoRow("margin", [{"recall@1": 0.83, "map@r": 0.57}, {"recall@1": 0.87, "map@r": 0.63}]),
    demo.DemoRow(demo.PIXELS, [{"recall@1": 0.49, "map@r": 0.21}]),
]


class Clock:
    """A clock that a test sets."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def lines(capsys):
    """(the callback, its clock, a function that returns the lines printed since its last call)"""
    clock = Clock()
    return ProgressLines(["a", "b", "c"], ", reused", clock), clock, lambda: capsys.readouterr().err.splitlines()


def test_runs_are_numbered_with_the_time_left(lines):
    report, clock, read_lines = lines
    report("a", 0.0)
    assert read_lines() == ["run 1 of 3: a"]
    for fraction in (0.5, 1.0):
        clock.now += 5
        report("a", fraction)
    assert read_lines() == []
    clock.now += 30  # of other work
    report("b", 0.0)
    assert read_lines() == ["run 2 of 3: b (about 20 s of training left)"]


def test_a_long_stage_is_reported_again(lines):
    report, clock, read_lines = lines
    report("a", 0.0)
    clock.now += 19
    report("a", 0.1)
    assert read_lines() == ["run 1 of 3: a"]
    clock.now += 11
    report("a", 0.2)
    report("a", 0.21)
    assert read_lines() == ["run 1 of 3: a, 20 % (about 7 min of training left)"]
    report("map", 0.0)
    clock.now += 25
    report("map", 0.5)
    report("map", 1.0)
    assert read_lines() == ["map", "map, 50 %"]


def test_a_run_that_was_trained_before_takes_no_time(lines):
    report, clock, read_lines = lines
    for fraction in (0.0, 1.0):
        report("a, reused", fraction)
    report("b", 0.0)
    clock.now += 10
    report("b", 1.0)
    report("c", 0.0)
    assert read_lines() == ["run 1 of 3: a, reused", "run 2 of 3: b", "run 3 of 3: c (about 10 s of training left)"]


def test_the_table_names_its_numbers(tmp_path, capsys, monkeypatch):
    def run_demo(out, steps, progress):
        progress(demo.list_run_names()[0] + demo.REUSED, 1.0)
        return ROWS

    def collect_content(out, progress):
        progress("pictures", 0.0)
        return {}

    monkeypatch.setattr("kinfold.demo.run_demo", run_demo)
    monkeypatch.setattr("kinfold.report.collect_content", collect_content)
    monkeypatch.setattr("kinfold.report.write_page", lambda content, path: path)
    code, printed, errors = run(capsys, monkeypatch, "demo", "--out", tmp_path)
    assert code == 0
    assert "characters not seen in training: mean (range of 2 seeds)" in printed
    assert "85.0 (83.0 to 87.0)" in printed
    assert "the report has the same means with 95 % intervals" in printed
    assert errors.splitlines() == ["run 1 of 8: dro-topk, seed 0, already trained", "pictures"]
