"""Everything that computes on tensors also does so on a device that is not the CPU, with the values of the CPU."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kinfold.testing import second_device
from kinfold.testing.second_device import SecondDeviceError

ROOT = Path(__file__).parent.parent


def run_there(*tests):
    try:
        second_device._build()
    except SecondDeviceError as error:
        if "compiler" not in str(error):
            raise
        pytest.skip(str(error))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.on_second_device",
        "-p",
        "no:cacheprovider",
        "-m",
        "not slow",
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.run([*command, *tests], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stdout[-8000:] + process.stderr[-2000:]


@pytest.mark.parametrize("every", [2, pytest.param(1, marks=pytest.mark.slow)])
def test_the_device_has_the_rules_of_a_gpu_and_the_values_of_the_cpu(every):
    run_there("tests/second_device", f"--every={every}")


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_the_contracts_of_losses_and_miners_hold_on_the_second_device(every):
    run_there("tests/contract/test_losses.py", "tests/contract/test_miners.py", f"--every={every}")


@pytest.mark.parametrize("every", [6, pytest.param(1, marks=pytest.mark.slow)])
def test_losses_and_miners_take_every_distance_on_the_second_device(every):
    losses = "tests/losses/test_distances.py::test_what_every_loss_must_do"
    miners = "tests/miners/test_distances.py::test_every_distance_gives_pairs_of_the_relation"
    run_there(losses, miners, f"--every={every}")


@pytest.mark.slow
def test_transforms_and_compilation_work_on_the_second_device():
    run_there("tests/contract/test_transforms.py", "tests/contract/test_compile.py")


def test_without_a_compiler_the_error_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(SecondDeviceError, match=r"needs a C\+\+ compiler: install g\+\+, or set CXX"):
        second_device._build()


def test_a_failing_compiler_leaves_nothing_behind(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    compiler = tmp_path / "compiler"
    compiler.write_text("#!/bin/sh\necho 'unknown header' >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    with pytest.raises(SecondDeviceError, match=r"cannot be compiled with torch(.|\n)*unknown header"):
        second_device._build()
    assert [*(tmp_path / "kinfold").iterdir()] == []
