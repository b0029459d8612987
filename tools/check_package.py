"""Build kinfold as it would be published, install it where nothing else is, and use it.

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
# nothing of the caller's environment is to be found by accident
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
    known = {"num_classes": 4, "dim": 8}
    try:
        loss = kinfold.losses.create(name)
    except ValueError:  # it owns proxies
        loss = kinfold.losses.create(name, **known)
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


class Place:
    """A virtual environment and the commands in it."""

    def __init__(self, folder: Path, python: str) -> None:
        self.folder = folder
        subprocess.run([python, "-m", "venv", folder / "venv"], check=True, env=ENVIRONMENT)

    def run(self, command: str, *arguments: str | Path) -> str:
        """What it prints; the end of what it says where it fails."""
        whole = [str(self.folder / "venv" / "bin" / command), *map(str, arguments)]
        done = subprocess.run(whole, cwd=self.folder, env=ENVIRONMENT, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{command} {' '.join(whole[1:])[:200]} failed:\n{done.stdout[-1500:]}\n{done.stderr[-3000:]}")
        return done.stdout

    def pip(self, *arguments: str | Path) -> str:
        within = ("--quiet", "--disable-pip-version-check", "--constraint", ROOT / "constraints.txt")
        return self.run("python", "-m", "pip", "install", *within, *arguments)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--python", default=sys.executable, help="the interpreter to install for")
    parser.add_argument("--extras", action="store_true", help="also resolve every extra, and install the smaller ones")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kinfold-package-") as folder:
        wheel, sdist = built(Path(folder))
        place = Place(Path(folder), asked.python)
        told("installed from the wheel", lambda: place.pip(wheel))
        use(place)
        told("installed from the source distribution", lambda: place.pip("--force-reinstall", "--no-deps", sdist))
        use(place)
        told("types", lambda: typed(place))
        if asked.extras:
            for extra in EXTRAS:
                told(f"extra {extra}", partial(with_extra, place, wheel, extra))


def built(folder: Path) -> tuple[Path, Path]:
    """The wheel and the source distribution; the latter must make the former again."""
    made = [*hatch(ROOT, folder / "first", "sdist", "wheel")]
    sdist, wheel = sorted(made, key=lambda path: path.suffix)
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


def use(place: Place) -> None:
    """What a new user does on the first day; run folders are made anew each time."""
    run = tempfile.mkdtemp(dir=place.folder)
    short = ("--set", "training.steps=20", "--set", "model.dim=8", "--set", "sampler.batch_size=30")
    told("kinfold --version", lambda: place.run("kinfold", "--version"))
    told("kinfold list losses", lambda: f"{len(place.run('kinfold', 'list', 'losses').splitlines())} names")
    told("every loss with its gradient", lambda: place.run("python", "-c", LOSS))
    place.run("python", "-c", MAKE_ROWS)
    train = ("train", "features", "--root", "rows.npz", "--out", f"{run}/run", "--json", *short)
    told("kinfold train", lambda: score(place.run("kinfold", *train)))
    told("kinfold evaluate", lambda: score(place.run("kinfold", "evaluate", f"{run}/run", "--json")))
    told("kinfold doctor", lambda: healthy(place.run("kinfold", "doctor", "--json")))


def score(printed: str) -> str:
    found = json.loads(printed)
    value = found.get("test", found.get("metrics", found)).get("recall@1")
    if value is None or not 0.5 < value <= 1.0:
        sys.exit(f"classes that lie apart were not found: {printed[:500]}")
    return f"recall@1 {value:.3f}"


def healthy(printed: str) -> str:
    findings = json.loads(printed)["findings"]
    return f"{sum(finding['status'] == 'ok' for finding in findings)} of {len(findings)} ok, no problem"


def typed(place: Place) -> str:
    """mypy finds the mistake, and nothing else."""
    place.pip("mypy")
    (place.folder / "typed.py").write_text(TYPED)
    command = [str(place.folder / "venv" / "bin" / "mypy"), "--strict", "--no-error-summary", "typed.py"]
    done = subprocess.run(command, cwd=place.folder, env=ENVIRONMENT, capture_output=True, text=True)
    if not (done.stdout.startswith("typed.py:4: error") and done.stdout.count("error:") == 1):
        sys.exit(f"mypy does not see the types of kinfold: {done.stdout}{done.stderr}")
    return "mypy finds the mistake"


def with_extra(place: Place, wheel: Path, extra: str) -> str:
    wanted = f"kinfold[{extra}] @ {wheel.as_uri()}"
    if extra not in SMALL:
        place.pip("--dry-run", wanted)
        return "can be installed"
    place.pip(wanted)
    findings = json.loads(place.run("kinfold", "doctor", "--json"))["findings"]
    (found,) = [finding for finding in findings if finding["topic"] == f"extra {extra}"]
    if found["status"] != "ok":
        sys.exit(f"the extra {extra} is installed, but {found}")
    return f"installed: {found['found']}"


def told(what: str, work: Callable[[], str]) -> None:
    print(f"{what}: {work().strip() or 'done'}", flush=True)


if __name__ == "__main__":
    main()
