"""The machine and the package versions of a run, on which a bit-exact result depends."""

import os
import platform
import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

import kinfold
from kinfold.devices import describe_device, resolve_device
from kinfold.distributed import World
from kinfold.files.checksums import digest_parts

_PACKAGES = ("torch", "numpy", "pillow", "safetensors", "matplotlib", "transformers", "timm")
# A result depends on these to the last bit. The number of threads is restored when a run is resumed.
_CONDITIONS = ("ranks", "device", "processor", "python", "kinfold")


def describe_environment(device: torch.device) -> dict[str, Any]:
    """Return versions, threads, number of processes and processor, for environment.json."""
    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return {
        "kinfold": kinfold.__version__,
        "code": compute_code_digest(),
        "python": platform.python_version(),
        "packages": versions,
        "platform": platform.platform(),
        "processor": platform.machine(),
        "threads": torch.get_num_threads(),
        "ranks": World.current().size,
        "device": describe_device(device),
        "command": sys.argv[1:],
    }


@cache
def compute_code_digest() -> str:
    """Return a digest of the source files of the package, which changes with any of them."""
    package = Path(kinfold.__file__).parent
    files = sorted(path for path in package.rglob("*.py"))
    return digest_parts(part for path in files for part in (path.relative_to(package).as_posix(), path.read_bytes()))


def find_differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return the differences of two environments that change the bits of a result.

    Examples:
        >>> find_differences({"ranks": 1, "packages": {"torch": "2.6"}}, {"ranks": 2, "packages": {"torch": "2.7"}})
        ['ranks 1 -> 2', 'torch 2.6 -> 2.7']
    """
    sides = [
        {**{key: side[key] for key in _CONDITIONS if key in side}, **side.get("packages", {})} for side in (before, now)
    ]
    return [f"{key} {old} -> {sides[1][key]}" for key, old in sides[0].items() if sides[1].get(key, old) != old]


def choose_device(name: str) -> torch.device:
    """Return the device of a name; "auto" is this process' GPU where there is one, else the CPU."""
    if name != "auto":
        return resolve_device(name)
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
