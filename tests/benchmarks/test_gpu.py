"""`make bench-gpu` on devices that every machine has: all rows are there, and the page shows them."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import kinfold
from benchmarks import gpu, gpu_page


@pytest.fixture(scope="module", params=["cpu", "second"])
def results(request, tmp_path_factory):
    if request.param == "second" and shutil.which("g++") is None:
        pytest.skip("the second device needs g++")
    # in a process of its own: torch keeps a device until the process ends
    out = tmp_path_factory.mktemp("gpu") / "results.json"
    command = [sys.executable, "-m", "benchmarks.gpu", "--device", request.param, "--sizes", "tiny", "--out", out]
    subprocess.run(command, check=True, cwd=Path(__file__).parent.parent.parent)
    return json.loads(out.read_text())


@pytest.mark.slow
def test_everything_is_checked_and_measured(results):
    failures = [row for row in results["correctness"] if row["status"] == "fails"]
    assert not failures
    names = {row["name"] for row in results["correctness"]}
    assert {f"loss {name}" for name in kinfold.list("losses")} <= names
    assert {f"miner {name}" for name in kinfold.list("miners")} <= names
    assert {row["loss"] for row in results["losses"]} == {*kinfold.list("losses")}
    for part in ("losses", "evaluation", "training"):
        assert all(row["kinfold"]["seconds"] > 0 for row in results[part])
    assert sum("pytorch-metric-learning" in row for row in results["losses"]) == len(gpu.PEERS)
    assert not results["left_out"]
    page = gpu_page.make_page({"one.json": results})
    assert "Tiny sizes" in page
    assert "http" not in page  # offline
    for name in kinfold.list("losses"):
        assert f"<td>{name}</td>" in page


def test_what_takes_too_long_is_left_out_and_named(monkeypatch):
    monkeypatch.setattr(gpu, "check", lambda device: iter([{"name": "a", "status": "holds", "message": ""}] * 3))
    monkeypatch.setattr(gpu, "measure_losses", lambda device, sizes: iter(()))
    monkeypatch.setattr(gpu, "measure_evaluation", lambda device, sizes: iter(()))
    monkeypatch.setattr(gpu, "measure_training", lambda device, sizes: iter(()))
    results = gpu.run(torch.device("cpu"), "tiny", minutes=0.0, report=lambda line: None)
    assert results["left_out"] == ["rest of correctness"]
    assert len(results["correctness"]) == 1


def test_a_device_that_differs_is_reported():
    row = gpu._compare("loss", lambda: [torch.ones(2)], lambda: [torch.zeros(2)])
    assert row["status"] == "fails"
    assert "Tensor-likes are not close" in row["message"]


def test_too_little_memory_is_a_row_and_no_crash():
    def fail():
        raise torch.OutOfMemoryError("CUDA out of memory")

    row = gpu.measure_call(fail, torch.device("cpu"), 1)
    assert row == {"error": "OutOfMemoryError: CUDA out of memory"}


def test_other_files_are_refused(tmp_path):
    (tmp_path / "a.json").write_text("[]")
    with pytest.raises(ValueError, match="no file of python"):
        gpu_page.read(tmp_path / "a.json")
    (tmp_path / "b.json").write_text(json.dumps({"schema": gpu.SCHEMA, "version": 99}))
    with pytest.raises(ValueError, match="version 99"):
        gpu_page.read(tmp_path / "b.json")
