"""A device beside the CPU, for tests on machines without a GPU.

The device computes with the kernels of the CPU but has the rules of a GPU: tensors of two devices cannot be mixed, a
generator draws for its own device only, and every operation that makes the host wait is noted. `second_device.cpp` is
compiled when it is first used, which needs g++ and takes some seconds, and kept in the user's cache folder.

A process that has loaded the device keeps it: torch then reports an accelerator.
"""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import torch
from torch.utils import backend_registration

DEVICE_NAME = "second"

_SOURCE = Path(__file__).with_suffix(".cpp")
_BUILD_SECONDS = 600
_count_lock = threading.Lock()


class SecondDeviceError(RuntimeError):
    """The second device cannot be built here; the message says why."""


class _DeviceModule:
    """What torch looks up as `torch.second`."""

    def is_initialized(self) -> bool:
        return True

    def is_available(self) -> bool:
        return True

    def current_device(self) -> int:
        return 0

    def device_count(self) -> int:
        return 1

    def synchronize(self, device: object = None) -> None:
        return None

    def set_device(self, device: object) -> None:
        return None

    @contextmanager
    def device(self, device: object) -> Iterator[None]:
        yield

    def get_device_name(self, device: object = None) -> str:
        return "the CPU as a second device"

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.float16, torch.bfloat16]

    def manual_seed(self, seed: int) -> None:
        _default_generator().manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        self.manual_seed(seed)

    def get_rng_state(self, device: object = None) -> torch.Tensor:
        return _default_generator().get_state()

    def set_rng_state(self, state: torch.Tensor, device: object = None) -> None:
        _default_generator().set_state(state)

    def _is_in_bad_fork(self) -> bool:
        return False


def _default_generator() -> torch.Generator:
    generator: torch.Generator = torch.ops.second_device.default_generator()
    return generator


@cache
def load_second_device() -> torch.device:
    """Build and register the device once, and return it.

    Returns:
        The device "second:0". Tensors get there by `.to("second")` and `device="second"`.

    Raises:
        SecondDeviceError: There is no compiler, it fails, the process has another device of this kind, or it has
            computed a gradient before.

    Example:
        ```python
        device = load_second_device()
        torch.ones(2, device=device) + torch.ones(2)  # RuntimeError: found at least two devices
        ```
    """
    torch.ops.load_library(str(_build()))  # type: ignore[no-untyped-call]
    try:
        backend_registration.rename_privateuse1_backend(DEVICE_NAME)
        torch._register_device_module(DEVICE_NAME, _DeviceModule())  # type: ignore[no-untyped-call]
        backend_registration.generate_methods_for_privateuse1_backend()
    except RuntimeError as error:
        raise SecondDeviceError(f"torch refuses the second device: {error}") from None
    device = torch.device(DEVICE_NAME, 0)
    try:
        leaf = torch.ones((), device=device, requires_grad=True)
        torch.autograd.grad(leaf * 2, leaf)
    except RuntimeError as error:
        raise SecondDeviceError(
            "load the second device before the first backward() of the process: torch starts its threads then"
        ) from error
    return device


@contextmanager
def count_waits() -> Iterator[Counter[str]]:
    """Count the operations within the block that make the host wait for the second device.

    Counted are reads of single values, operations whose output has a size that only the device knows (`nonzero`,
    masks as index, `unique`, `repeat_interleave` without `output_size`), copies to the host, and copies to the device
    that are not `non_blocking`.

    Yields:
        Number of waits by operation, filled when the block ends.
    """
    with _count_lock:
        counts: Counter[str] = Counter()
        torch.ops.second_device.take_waits()
        try:
            yield counts
        finally:
            counts.update(torch.ops.second_device.take_waits())


def _build() -> Path:
    """Compile the device for this version of torch, unless that was done before; returns the library."""
    key = hashlib.sha256(_SOURCE.read_bytes())
    key.update(f"{torch.__version__} {torch.__file__} {platform.machine()}".encode())
    name = f"second_device_{key.hexdigest()[:16]}.so"
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kinfold"
    library = folder / name
    if library.is_file():
        return library
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    if compiler is None:
        raise SecondDeviceError("the second device needs a C++ compiler: install g++, or set CXX")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        build_folder = tempfile.mkdtemp(dir=folder)
    except OSError:  # compiled anew by every process
        folder = Path(tempfile.mkdtemp())
        library, build_folder = folder / name, str(folder)
    built = Path(build_folder) / name
    try:
        _compile(compiler, built)
        built.replace(library)
    finally:
        if Path(build_folder) != folder:
            shutil.rmtree(build_folder, ignore_errors=True)
    return library


def _compile(compiler: str, target: Path) -> None:
    torch_folder = Path(torch.__file__).parent
    include = torch_folder / "include"
    abi = int(torch.compiled_with_cxx11_abi())
    command = [compiler, "-std=c++20", "-O1", "-fPIC", "-shared", "-w", f"-D_GLIBCXX_USE_CXX11_ABI={abi}"]
    command += [f"-I{include}", f"-I{include / 'torch/csrc/api/include'}", str(_SOURCE), "-o", str(target)]
    command += [f"-L{torch_folder / 'lib'}", "-ltorch_cpu", "-lc10"]
    _run(command, "compiled")
    # a library that does not fit this torch ends its process: let it be another one than this
    _run([sys.executable, "-c", f"import torch; torch.ops.load_library({str(target)!r})"], "loaded")


def _run(command: list[str], purpose: str) -> None:
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=_BUILD_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SecondDeviceError(f"the second device cannot be {purpose}: {error}") from None
    if result.returncode != 0:
        lines = result.stderr.strip().splitlines()
        shown = "\n".join(lines if len(lines) < 13 else [*lines[:6], "...", *lines[-6:]])
        raise SecondDeviceError(f"the second device cannot be {purpose} with torch {torch.__version__}:\n{shown}")
