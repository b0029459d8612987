"""`kinfold doctor`: what is there, what is broken, and the exit code that says so."""

import json
import os
import sys
import tempfile
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import kinfold
from kinfold.cli import doctor
from tests.cli.runs import run

ROOT = Path(__file__).parents[2]
ALL = doctor.EXTRAS


@pytest.fixture(autouse=True)
def few_extras(monkeypatch):
    """Importing every optional package takes seconds; one test does it."""
    monkeypatch.setattr(doctor, "EXTRAS", {"here": (("json",), ("pytest",), "nothing")})


def findings(capsys, monkeypatch):
    """(exit code, {topic: finding})"""
    code, printed, errors = run(capsys, monkeypatch, "doctor", "--json")
    assert "Traceback" not in errors
    told = json.loads(printed)
    assert told["ok"] == (code == 0)
    return code, {finding["topic"]: finding for finding in told["findings"]}


def test_a_machine_on_which_these_tests_run_is_well(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KINFOLD_DATA", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    code, found = findings(capsys, monkeypatch)
    assert code == 0
    assert found["kinfold"]["found"] == kinfold.__version__
    assert found["torch"]["found"] == torch.__version__
    assert found["python"]["found"] == ".".join(map(str, sys.version_info[:3]))
    for topic in ("training step, cpu, float32", "training step, cpu, bfloat16", "gloo", "disk", "write access"):
        assert found[topic]["status"] == "ok"
    assert "OMP_NUM_THREADS=1" in found["threads"]["found"]
    assert found["KINFOLD_DATA"]["status"] == "note"
    assert [*tmp_path.iterdir()] == []  # nothing is left behind
    assert not torch.distributed.is_initialized()
    code, printed, _ = run(capsys, monkeypatch, "doctor")
    assert code == 0
    assert "everything that was tried works; nothing was sent anywhere" in printed


@pytest.mark.slow
def test_every_optional_package_is_imported_as_it_is(capsys, monkeypatch):
    monkeypatch.undo()
    code, found = findings(capsys, monkeypatch)
    assert {topic.removeprefix("extra ") for topic in found if topic.startswith("extra ")} == set(doctor.EXTRAS)
    assert code == 0
    assert found["extra glyphs"]["found"].startswith("matplotlib ")


def test_every_extra_of_the_package_is_known():
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for extra in set(stated) - {"test", "docs"}:
        assert extra in ALL, f"kinfold doctor does not say what the extra {extra!r} adds"


def test_data_sets_below_the_folder_of_data(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("KINFOLD_DATA", str(tmp_path))
    code, found = findings(capsys, monkeypatch)
    assert (code, found["KINFOLD_DATA"]["status"]) == (0, "note")
    (tmp_path / "cub").mkdir()
    (tmp_path / "something").mkdir()
    code, found = findings(capsys, monkeypatch)
    assert (code, found["KINFOLD_DATA"]["found"]) == (0, f"{tmp_path} has cub")
    assert found["KINFOLD_DATA"]["advice"] == "kinfold data check cub"
    monkeypatch.setenv("KINFOLD_DATA", str(tmp_path / "nowhere"))
    code, found = findings(capsys, monkeypatch)
    assert (code, found["KINFOLD_DATA"]["status"]) == (1, "problem")
    code, printed, _ = run(capsys, monkeypatch, "doctor")
    assert code == 1
    assert "PROBLEM" in printed
    assert "1 problem; nothing was sent anywhere" in printed


def test_extras_that_are_missing_are_a_note_and_broken_ones_a_problem(tmp_path, capsys, monkeypatch):
    (tmp_path / "broken_extra.py").write_text("raise RuntimeError('operator x::y does not exist')")
    (tmp_path / "crashing_extra.py").write_text("import os; os.abort()")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    extras = {
        "absent": (("no_such_module",), ("no-such-package",), "wings"),
        "broken": (("broken_extra",), ("broken-extra",), "wings"),
        "crashing": (("crashing_extra",), ("crashing-extra",), "wings"),
    }
    monkeypatch.setattr(doctor, "EXTRAS", extras)
    code, found = findings(capsys, monkeypatch)
    assert code == 1
    assert found["extra absent"] == {
        "topic": "extra absent",
        "status": "note",
        "found": "not installed; it adds wings",
        "advice": "pip install no-such-package",
    }
    assert found["extra broken"]["status"] == "problem"
    assert "operator x::y does not exist" in found["extra broken"]["found"]
    assert found["extra crashing"]["status"] == "problem"


def test_what_to_type_can_be_copied_from_a_narrow_terminal(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    install = 'pip install "kinfold[efficientnet]"'
    absent = doctor.Finding("extra efficientnet", "note", "not installed; it adds " + "wings " * 20, install)
    doctor._show([doctor.Finding("python", "ok", "3.11"), absent], 0)
    told = capsys.readouterr().out.splitlines()
    assert f"  extra efficientnet: {install}" in told
    assert "what may be worth doing:" in told
    assert "what to do:" not in told  # there is no problem
    doctor._show([doctor.Finding("disk", "problem", "full", "free some space")], 1)
    told = capsys.readouterr().out
    assert "what to do:\n  disk: free some space\n" in told
    assert "worth doing" not in told


def test_a_full_disk_and_a_folder_that_cannot_be_written_to(capsys, monkeypatch):
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda path: SimpleNamespace(free=5 << 20))

    def refused(**options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(tempfile, "TemporaryFile", refused)
    code, found = findings(capsys, monkeypatch)
    assert code == 1
    assert found["disk"]["status"] == "problem"
    assert found["write access"]["found"] == f"cannot write to {os.getcwd()}: Permission denied"
    assert found["write access"]["advice"]


def test_a_training_step_without_a_gradient_is_a_problem(capsys, monkeypatch):
    monkeypatch.setattr(
        "kinfold.losses.create",
        lambda name: lambda rows, labels: (rows * torch.nan if rows.dtype == torch.bfloat16 else rows).sum(),
    )
    code, found = findings(capsys, monkeypatch)
    assert code == 1
    assert found["training step, cpu, float32"]["status"] == "ok"
    assert found["training step, cpu, bfloat16"]["status"] == "problem"
    assert found["training step, cpu, bfloat16"]["advice"] == "train in float32"


def test_a_look_that_fails_itself_does_not_hide_the_others(capsys, monkeypatch):
    def failing(name):
        raise RuntimeError("illegal instruction")

    monkeypatch.setattr("kinfold.losses.create", failing)
    code, found = findings(capsys, monkeypatch)
    assert code == 1
    assert found["training"]["found"] == "RuntimeError: illegal instruction"
    assert found["gloo"]["status"] == "ok"


def test_help_has_an_example(capsys, monkeypatch):
    code, printed, _ = run(capsys, monkeypatch, "doctor", "--help")
    assert code == 0
    assert "kinfold doctor" in printed
    assert "nothing is sent anywhere" in printed
