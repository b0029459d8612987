"""Result tables: true numbers, and commands that reproduce them."""

import json
import shlex
import shutil

import pytest

from kinfold.experiments import Bench
from kinfold.experiments.repeat import Repeat
from kinfold.experiments.statistics import compute_interval
from kinfold.training import Run
from tests.cli.runs import run as kinfold


def test_means_and_intervals_are_those_of_the_repeats(bench, of_bench):
    (table,) = of_bench["tables"]
    assert sorted(row["method"] for row in table["rows"]) == ["contrastive", "triplet"]
    for row in table["rows"]:
        for column in table["columns"]:
            folders = [bench / "runs" / "tiny" / row["method"] / f"seed-{seed}" for seed in (0, 1, 2)]
            expected = compute_interval([Repeat.open(folder).scores["separated"][column["key"]] for folder in folders])
            cell = row["cells"][column["key"]]
            assert (cell["mean"], cell["half_width"], cell["count"]) == (expected.mean, expected.half_width, 3)
    compared = Bench.open(bench).compare("tiny", "separated")
    # methods that selected the start are not compared; tests/experiments/test_results.py has such a bench
    listed = [row for row in compared.pairs if not {row.first, row.second} & {*compared.untrained}]
    assert [(row["p"], row["adjusted"]) for row in table["comparisons"]] == [(r.p, r.adjusted) for r in listed]


def test_the_best_row_comes_first(of_bench):
    (table,) = of_bench["tables"]
    means = [row["cells"]["recall@1"]["mean"] for row in table["rows"]]
    assert means == sorted(means, reverse=True)
    assert table["sorted"] == "recall@1"


def test_notes_explain_intervals_and_caution_about_few_repeats(of_bench):
    (table,) = of_bench["tables"]
    assert any(note.startswith("±: half width of the 95 % interval of the mean") for note in table["notes"])
    assert any(note.startswith("caution: with 3 repeats the test relies on") for note in table["notes"])


def test_the_command_of_a_row_reproduces_its_numbers(bench, of_bench, tmp_path, monkeypatch, capsys):
    """On a copy elsewhere, from the folder that the commands are relative to."""
    shutil.copytree(bench, tmp_path / "tiny")
    monkeypatch.chdir(tmp_path)
    row = of_bench["tables"][0]["rows"][0]
    lines = row["command"].splitlines()
    assert len(lines) == 3
    values = []
    for line in lines:
        code, printed, errors = kinfold(capsys, monkeypatch, *shlex.split(line)[1:], "--json")
        assert code == 0, errors
        values.append(json.loads(printed)["test"]["map@r"])
    assert sum(values) / 3 == pytest.approx(row["cells"]["map@r"]["mean"], abs=1e-12)


def test_the_configuration_of_a_row_has_the_result_of_the_search(bench, of_bench):
    for row in of_bench["tables"][0]["rows"]:
        config = Run.open(bench / "runs" / "tiny" / row["method"] / "seed-0" / "fold-0").config
        assert f"lr = {config.optimizer.lr!r}" in row["configuration"]
