"""What an installed library brings along."""

import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any


def installs(environments: dict[str, Path], imports: dict[str, str], rounds: int = 7) -> list[dict[str, Any]]:
    """What a bare install brings, and what it takes until the first loss is made, by the program in `imports`."""
    timed = "import torch, sys, time; before, begin = len(sys.modules), time.process_time()\n{}\n"
    timed += "print(time.process_time() - begin, len(sys.modules) - before)"
    told: dict[str, list[tuple[float, ...]]] = {name: [] for name in environments}
    for _ in range(rounds):
        for name, python in environments.items():
            command = [str(python), "-c", timed.format(imports[name])]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            told[name].append(tuple(map(float, done.stdout.split())))
    found = []
    for name, python in environments.items():
        site = next((python.parent.parent / "lib").glob("python*")) / "site-packages"
        own = needed(name, site) - needed("torch", site)
        sizes = [sum(f.stat().st_size for f in _files(part, site)) for part in own]
        found.append(
            {
                "library": f"{name} {getattr(distribution(name, site), 'version', '')}",
                "distributions": len(own),
                "megabytes": sum(sizes) / 2**20,
                "modules": int(min(told[name])[1]),
                "seconds": min(told[name])[0],
            }
        )
    return found


def distribution(name: str, site: Path) -> metadata.Distribution | None:
    return next(iter(metadata.distributions(name=name, path=[str(site)])), None)


def needed(name: str, site: Path) -> set[str]:
    """A distribution and all that it requires, by the metadata of what is installed; extras are not asked for."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    found: set[str] = set()
    waiting = [Requirement(name)]
    while waiting:
        asked = waiting.pop()
        installed = distribution(asked.name, site)
        if installed is None or canonicalize_name(asked.name) in found:
            continue
        found.add(canonicalize_name(asked.name))
        for required in map(Requirement, installed.requires or []):
            extras = [{"extra": extra} for extra in ("", *asked.extras)]
            if required.marker is None or any(required.marker.evaluate(extra) for extra in extras):
                waiting.append(required)
    return found


def _files(name: str, site: Path) -> list[Path]:
    installed = distribution(name, site)
    listed = [] if installed is None else installed.files or []
    paths = [site / str(file) for file in listed if "__pycache__" not in str(file)]
    return [path for path in paths if path.exists()]


def install_table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| | distributions beside torch's | MB of these | modules for one loss | seconds for them |",
        "|---|---|---|---|---|",
    ]
    for r in rows:
        own = f"| {r['library']} | {r['distributions']} | {r['megabytes']:.0f} | {r['modules']} | "
        lines.append(own + f"{r['seconds']:.2f} |")
    return "\n".join(lines)
