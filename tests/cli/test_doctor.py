"""`kinfold doctor` reports what is installed and what is broken, and sets the exit code."""

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
    report = json.loads(printed)
    assert report["ok"] == (code == 0)
    return code, {finding["topic"]: finding for finding in report["findings"]}


def test_a_working_machine_has_no_problems(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KINFOLD_DATA", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    code, topics = findings(capsys, monkeypatch)
    assert code == 0
    assert topics["kinfold"]["found"] == kinfold.__version__
    assert topics["torch"]["found"] == torch.__version__
    assert topics["python"]["found"] == ".".join(map(str, sys.version_info[:3]))
    for topic in ("training step, cpu, float32", "training step, cpu, bfloat16", "gloo", "disk", "write access"):
        assert topics[topic]["status"] == "ok"
    assert "OMP_NUM_THREADS=1" in topics["threads"]["found"]
    assert topics["KINFOLD_DATA"]["status"] == "note"
    assert [*tmp_path.iterdir()] == []  # nothing is left behind
    assert not torch.distributed.is_initialized()
    code, printed, _ = run(capsys, monkeypatch, "doctor")
    assert code == 0
    assert "all checks passed; nothing was sent anywhere" in printed


@pytest.mark.slow
def test_every_optional_package_is_imported(capsys, monkeypatch):
    monkeypatch.undo()
    code, topics = findings(capsys, monkeypatch)
    assert {topic.removeprefix("extra ") for topic in topics if topic.startswith("extra ")} == set(doctor.EXTRAS)
    assert code == 0
    assert topics["extra glyphs"]["found"].startswith("matplotlib ")


def test_every_extra_of_the_package_is_checked():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for extra in set(extras) - {"test", "docs", "integrations"}:
        assert extra in ALL, f"kinfold doctor does not say what the extra {extra!r} adds"


def test_datasets_in_the_data_folder_are_listed(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("KINFOLD_DATA", str(tmp_path))
    code, topics = findings(capsys, monkeypatch)
    assert (code, topics["KINFOLD_DATA"]["status"]) == (0, "note")
    (tmp_path / "cub").mkdir()
    (tmp_path / "something").mkdir()
    code, topics = findings(capsys, monkeypatch)
    assert (code, topics["KINFOLD_DATA"]["found"]) == (0, f"{tmp_path} has cub")
    assert topics["KINFOLD_DATA"]["advice"] == "kinfold data check cub"
    monkeypatch.setenv("KINFOLD_DATA", str(tmp_path / "nowhere"))
    code, topics = findings(capsys, monkeypatch)
    assert (code, topics["KINFOLD_DATA"]["status"]) == (1, "problem")
    code, printed, _ = run(capsys, monkeypatch, "doctor")
    assert code == 1
    assert "PROBLEM" in printed
    assert "1 problem; nothing was sent anywhere" in printed


def test_missing_extras_are_a_note_and_broken_extras_a_problem(tmp_path, capsys, monkeypatch):
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
    code, topics = findings(capsys, monkeypatch)
    assert code == 1
    assert topics["extra absent"] == {
        "topic": "extra absent",
        "status": "note",
        "found": "not installed; it adds wings",
        "advice": "pip install no-such-package",
    }
    assert topics["extra broken"]["status"] == "problem"
    assert "operator x::y does not exist" in topics["extra broken"]["found"]
    assert topics["extra crashing"]["status"] == "problem"


def test_suggested_commands_can_be_copied_from_a_narrow_terminal(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    install = 'pip install "kinfold[efficientnet]"'
    absent = doctor.HealthCheck("extra efficientnet", "note", "not installed; it adds " + "wings " * 20, install)
    doctor._print([doctor.HealthCheck("python", "ok", "3.11"), absent], 0)
    lines = capsys.readouterr().out.splitlines()
    assert f"  extra efficientnet: {install}" in lines
    assert "what may be worth doing:" in lines
    assert "what to do:" not in lines  # there is no problem
    doctor._print([doctor.HealthCheck("disk", "problem", "full", "free some space")], 1)
    printed = capsys.readouterr().out
    assert "what to do:\n  disk: free some space\n" in printed
    assert "worth doing" not in printed


def test_a_full_disk_and_a_read_only_folder_are_problems(capsys, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=5 << 20))

    def refuse(**options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    code, topics = findings(capsys, monkeypatch)
    assert code == 1
    assert topics["disk"]["status"] == "problem"
    assert topics["write access"]["found"] == f"cannot write to {os.getcwd()}: Permission denied"
    assert topics["write access"]["advice"]


def test_a_training_step_without_a_gradient_is_a_problem(capsys, monkeypatch):
    monkeypatch.setattr(
        "kinfold.losses.create",
        lambda name: lambda rows, labels: (rows * torch.nan if rows.dtype == torch.bfloat16 else rows).sum(),
    )
    code, topics = findings(capsys, monkeypatch)
    assert code == 1
    assert topics["training step, cpu, float32"]["status"] == "ok"
    assert topics["training step, cpu, bfloat16"]["status"] == "problem"
    assert topics["training step, cpu, bfloat16"]["advice"] == "train in float32"


def test_a_check_that_raises_does_not_hide_the_others(capsys, monkeypatch):
    def fail(name):
        raise RuntimeError("illegal instruction")

    monkeypatch.setattr("kinfold.losses.create", fail)
    code, topics = findings(capsys, monkeypatch)
    assert code == 1
    assert topics["training"]["found"] == "RuntimeError: illegal instruction"
    assert topics["gloo"]["status"] == "ok"


def test_help_has_an_example(capsys, monkeypatch):
    code, printed, _ = run(capsys, monkeypatch, "doctor", "--help")
    assert code == 0
    assert "kinfold doctor" in printed
    assert "nothing is sent anywhere" in printed
