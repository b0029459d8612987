"""The wheel and the source distribution, built as a packager builds them: what is in them, and what mypy sees."""

import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

import kinfold
from tests.packaging.absent import PROJECT, ROOT

pytest.importorskip("hatchling", reason="hatchling builds the package; it is in the extra `test`")

NAME = f"kinfold-{kinfold.__version__}"


def build(target, source, out):
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(out)]
    process = subprocess.run(command, cwd=source, capture_output=True, text=True, timeout=120)
    assert process.returncode == 0, process.stderr[-3000:]
    (built,) = Path(out).glob("*.whl" if target == "wheel" else "*.tar.gz")
    return built


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build("wheel", ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    """The folder of the source distribution."""
    folder = tmp_path_factory.mktemp("sdist")
    with tarfile.open(build("sdist", ROOT, folder)) as archive:
        archive.extractall(folder, filter="data")
    return folder / NAME


def contents(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_wheel_holds_the_package_whole_and_nothing_else(wheel):
    names = {*contents(wheel)}
    package = {name for name in names if name.startswith("kinfold/")}
    source = ROOT / "src"
    files = {path for path in (source / "kinfold").rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert package == {str(path.relative_to(source)) for path in files}
    kinds = {Path(name).suffix or Path(name).name for name in package}
    assert {".py", ".typed", ".toml", ".json", ".js", ".css", ".html", ".cpp"} >= kinds - {"py.typed"}
    assert "kinfold/py.typed" in package
    assert {name.split("/")[0] for name in names} == {"kinfold", f"{NAME}.dist-info"}


def test_the_wheel_states_licences_command_extras_and_versions(wheel):
    held = contents(wheel)
    about = f"{NAME}.dist-info"
    assert {f"{about}/licenses/LICENSE", f"{about}/licenses/THIRD_PARTY.md"} <= {*held}
    assert b"kinfold = kinfold.cli.main:main" in held[f"{about}/entry_points.txt"]
    metadata = held[f"{about}/METADATA"].decode().splitlines()
    assert f"Version: {kinfold.__version__}" in metadata
    assert "License-Expression: Apache-2.0" in metadata
    assert f"Requires-Python: {PROJECT['requires-python']}" in metadata
    extras = {line.removeprefix("Provides-Extra: ") for line in metadata if line.startswith("Provides-Extra")}
    assert extras == {*PROJECT["optional-dependencies"]}
    needs = [line.removeprefix("Requires-Dist: ") for line in metadata if line.startswith("Requires-Dist")]
    assert {need for need in needs if "extra ==" not in need} == {*PROJECT["dependencies"]}


def test_the_source_distribution_builds_the_same_wheel(wheel, unpacked, tmp_path):
    assert contents(build("wheel", unpacked, tmp_path)) == contents(wheel)


def test_the_source_distribution_holds_what_its_makefile_needs(unpacked):
    held = {path.name for path in unpacked.iterdir()}
    assert held == {
        *("src", "tests", "benchmarks", "docs", "tools"),
        *("README.md", "CHANGELOG.md", "CITATION.cff", "LICENSE", "THIRD_PARTY.md", "CONTRIBUTING.md", "SECURITY.md"),
        *("pyproject.toml", "constraints.txt", "Makefile", "mkdocs.yml", "PKG-INFO", ".gitignore"),
    }
    assert not [path for path in unpacked.rglob("*") if path.suffix == ".pyc"]


USER = """
import kinfold
import torch
from kinfold.losses.multi_similarity import MultiSimilarity
from torch import Tensor, nn


class Head(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = nn.Linear(width, 8)
        self.loss = MultiSimilarity(threshold=0.5)

    def forward(self, rows: Tensor, labels: Tensor) -> Tensor:
        value: Tensor = self.loss(self.layer(rows), labels)
        return value


def score(rows: Tensor, labels: Tensor) -> float:
    scores: dict[str, float] = kinfold.metrics.evaluate(rows, labels, metrics=["recall@1"])
    return scores["recall@1"]


names: list[str] = kinfold.list("losses")
rows, labels = torch.eye(6), torch.arange(6) // 2
Head(6)(rows, labels).backward()
score(rows, labels)
"""
MISTAKES = """
import kinfold
import torch
from kinfold.losses.multi_similarity import MultiSimilarity

MultiSimilarity(threshold="half")
kinfold.metrics.evaluate(torch.eye(6), torch.arange(6), metrics=3)
kinfold.list("losses") + 1
"""


@pytest.mark.slow
def test_a_users_mypy_reads_our_types(wheel, tmp_path):
    """In an environment of its own, with the wheel unpacked in it as pip does; torch is that of the tests."""
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True, timeout=60)
    (site,) = environment.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    (site / "tests.pth").write_text(sysconfig.get_path("purelib"))
    for name, text in (("user.py", USER), ("mistakes.py", MISTAKES)):
        (tmp_path / name).write_text(text)
    command = [sys.executable, "-m", "mypy", "--strict", "--python-executable", environment / "bin" / "python"]
    command += ["--config-file=", f"--cache-dir={tmp_path / 'cache'}", "--no-error-summary", "user.py", "mistakes.py"]
    process = subprocess.run([*map(str, command)], cwd=tmp_path, capture_output=True, text=True, timeout=240)
    errors = [line.split(": ", 2) for line in process.stdout.splitlines() if ": error: " in line]
    assert [position for position, _, _ in errors] == ["mistakes.py:6", "mistakes.py:7", "mistakes.py:8"], (
        process.stdout
    )
    assert "[arg-type]" in errors[0][2]
    subprocess.run([environment / "bin" / "python", "user.py"], cwd=tmp_path, check=True, timeout=120)
