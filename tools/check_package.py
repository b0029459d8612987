"""Build kinfold as it would be published, install it in an empty environment, and use it.

    python tools/check_package.py             # wheel and source distribution: built, installed, used
    python tools/check_package.py --extras    # and every extra: resolved, the smaller ones installed

Needs hatchling, and an index or a folder of wheels that pip knows. Everything lies in a temporary folder.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
SMALL = ("cars", "learner", "glyphs", "report", "efficientnet", "faiss", "tensorboard")  # under 100 MB each
# commands must not depend on the environment of the caller
ENVIRONMENT = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "VIRTUAL", "KINFOLD"))}

MAKE_ROWS = """
import numpy as np
kinds = np.repeat(np.arange(20), 12)
draw = np.random.default_rng(0)
rows = draw.normal(size=(20, 16))[kinds] + 0.3 * draw.normal(size=(240, 16))
np.savez("rows.npz", embeddings=rows.astype("float32"), labels=kinds, split=np.where(kinds < 12, "train", "test"))
"""
LOSS = """
import torch, kinfold
rows = torch.randn(20, 8, generator=torch.Generator().manual_seed(0)).requires_grad_()
for name in kinfold.list("losses"):
    rows.grad = None
    sizes = {"num_classes": 4, "dim": 8}
    try:
        loss = kinfold.losses.create(name)
    except ValueError:  # it owns proxies
        loss = kinfold.losses.create(name, **sizes)
    loss(rows, torch.arange(20) // 5).backward()
    assert rows.grad.isfinite().all() and rows.grad.any(), name
print(len(kinfold.list("losses")), "losses")
"""
TYPED = """
import kinfold
from kinfold.losses.multi_similarity import MultiSimilarity
names: list[str] = kinfold.list("losses")
MultiSimilarity(threshold="half")
"""


class Environment:
    """A virtual environment and the commands in it."""

    def __init__(self, folder: Path, python: str) -> None:
        self.folder = folder
        subprocess.run([python, "-m", "venv", folder / "venv"], check=True, env=ENVIRONMENT)

    def run(self, command: str, *arguments: str | Path) -> str:
        """Return the output of a command; exit with the end of its output if it fails."""
        line = [str(self.folder / "venv" / "bin" / command), *map(str, arguments)]
        process = subprocess.run(line, cwd=self.folder, env=ENVIRONMENT, capture_output=True, text=True)
        if process.returncode:
            sys.exit(
                f"{command} {' '.join(line[1:])[:200]} failed:\n{process.stdout[-1500:]}\n{process.stderr[-3000:]}"
            )
        return process.stdout

    def pip(self, *arguments: str | Path) -> str:
        within = ("--quiet", "--disable-pip-version-check", "--constraint", ROOT / "constraints.txt")
        return self.run("python", "-m", "pip", "install", *within, *arguments)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--python", default=sys.executable, help="the interpreter to install for")
    parser.add_argument("--extras", action="store_true", help="also resolve every extra, and install the smaller ones")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kinfold-package-") as folder:
        wheel, sdist = build(Path(folder))
        environment = Environment(Path(folder), options.python)
        report("installed from the wheel", lambda: environment.pip(wheel))
        try_commands(environment)
        report(
            "installed from the source distribution", lambda: environment.pip("--force-reinstall", "--no-deps", sdist)
        )
        try_commands(environment)
        report("types", lambda: check_types(environment))
        if options.extras:
            for extra in EXTRAS:
                report(f"extra {extra}", partial(try_extra, environment, wheel, extra))


def build(folder: Path) -> tuple[Path, Path]:
    """Build the wheel and the source distribution, and check that the latter builds the same wheel."""
    archives = [*hatch(ROOT, folder / "first", "sdist", "wheel")]
    sdist, wheel = sorted(archives, key=lambda path: path.suffix)
    subprocess.run(["tar", "-xzf", sdist, "-C", folder], check=True)
    (again,) = hatch(folder / sdist.name.removesuffix(".tar.gz"), folder / "second", "wheel")
    if contents(again) != contents(wheel):
        sys.exit("the source distribution makes another wheel than the repository")
    print(f"{wheel.name}: {wheel.stat().st_size:,} bytes, {sdist.name}: {sdist.stat().st_size:,} bytes", flush=True)
    return wheel, sdist


def hatch(source: Path, out: Path, *targets: str) -> list[Path]:
    for target in targets:
        command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(out)]
        subprocess.run(command, cwd=source, check=True, capture_output=True)
    return [*out.iterdir()]


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def try_commands(environment: Environment) -> None:
    """Run the first commands of a new user, with a new run folder each time."""
    run = tempfile.mkdtemp(dir=environment.folder)
    short = ("--set", "training.steps=20", "--set", "model.dim=8", "--set", "sampler.batch_size=30")
    report("kinfold --version", lambda: environment.run("kinfold", "--version"))
    report("kinfold list losses", lambda: f"{len(environment.run('kinfold', 'list', 'losses').splitlines())} names")
    report("every loss with its gradient", lambda: environment.run("python", "-c", LOSS))
    environment.run("python", "-c", MAKE_ROWS)
    train = ("train", "features", "--root", "rows.npz", "--out", f"{run}/run", "--json", *short)
    report("kinfold train", lambda: read_score(environment.run("kinfold", *train)))
    report("kinfold evaluate", lambda: read_score(environment.run("kinfold", "evaluate", f"{run}/run", "--json")))
    report("kinfold doctor", lambda: summarize_doctor(environment.run("kinfold", "doctor", "--json")))


def read_score(printed: str) -> str:
    scores = json.loads(printed)
    value = scores.get("test", scores.get("metrics", scores)).get("recall@1")
    if value is None or not 0.5 < value <= 1.0:
        sys.exit(f"classes that lie apart were not found: {printed[:500]}")
    return f"recall@1 {value:.3f}"


def summarize_doctor(printed: str) -> str:
    findings = json.loads(printed)["findings"]
    return f"{sum(finding['status'] == 'ok' for finding in findings)} of {len(findings)} ok, no problem"


def check_types(environment: Environment) -> str:
    """Check that mypy finds the mistake, and nothing else."""
    environment.pip("mypy")
    (environment.folder / "typed.py").write_text(TYPED)
    command = [str(environment.folder / "venv" / "bin" / "mypy"), "--strict", "--no-error-summary", "typed.py"]
    process = subprocess.run(command, cwd=environment.folder, env=ENVIRONMENT, capture_output=True, text=True)
    if not (process.stdout.startswith("typed.py:5: error") and process.stdout.count("error:") == 1):
        sys.exit(f"mypy does not see the types of kinfold: {process.stdout}{process.stderr}")
    return "mypy finds the mistake"


def try_extra(environment: Environment, wheel: Path, extra: str) -> str:
    wanted = f"kinfold[{extra}] @ {wheel.as_uri()}"
    if extra not in SMALL:
        environment.pip("--dry-run", wanted)
        return "can be installed"
    environment.pip(wanted)
    findings = json.loads(environment.run("kinfold", "doctor", "--json"))["findings"]
    (result,) = [finding for finding in findings if finding["topic"] == f"extra {extra}"]
    if result["status"] != "ok":
        sys.exit(f"the extra {extra} is installed, but {result}")
    return f"installed: {result['found']}"


def report(what: str, work: Callable[[], str]) -> None:
    print(f"{what}: {work().strip() or 'done'}", flush=True)


if __name__ == "__main__":
    main()
