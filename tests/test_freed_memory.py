"""Memory that is freed stays with the process, where the C library is glibc."""

import os
import platform
import subprocess
import sys

import pytest

from kinfold.freed_memory import keep_freed_memory

FAULTS = """
import resource
import sys

import torch

from kinfold.freed_memory import keep_freed_memory

if sys.argv[1] == "keep":
    assert keep_freed_memory()


def work():
    parts = [torch.ones(1 << 24) for _ in range(4)]  # 64 MB each
    del parts


for _ in range(3):
    work()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(3):
    work()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def count_faults(mode: str) -> int:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    process = subprocess.run([sys.executable, "-c", FAULTS, mode], env=environment, capture_output=True, check=True)
    return int(process.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has the setting")
def test_a_process_that_keeps_freed_memory_does_not_get_its_pages_again():
    assert count_faults("keep") < 1000 < 10_000 < count_faults("return")  # 196,608 pages of 4 KB are written


@pytest.mark.parametrize("name", ["MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES"])
def test_settings_of_the_user_stay(monkeypatch, name):
    monkeypatch.setenv(name, "1")
    assert not keep_freed_memory()


def test_other_systems_are_left_alone(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not keep_freed_memory()
