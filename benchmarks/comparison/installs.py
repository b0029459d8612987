"""Measure the size of an install and the time of an import."""

import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any


def installs(environments: dict[str, Path], imports: dict[str, str], rounds: int = 7) -> list[dict[str, Any]]:
    """Measure a bare install, and the time until the first loss is created by the program in `imports`."""
    timed = "import torch, sys, time; before, begin = len(sys.modules), time.process_time()\n{}\n"
    timed += "print(time.process_time() - begin, len(sys.modules) - before)"
    timings: dict[str, list[tuple[float, ...]]] = {name: [] for name in environments}
    for _ in range(rounds):
        for name, python in environments.items():
            command = [str(python), "-c", timed.format(imports[name])]
            process = subprocess.run(command, check=True, capture_output=True, text=True)
            timings[name].append(tuple(map(float, process.stdout.split())))
    results = []
    for name, python in environments.items():
        site = next((python.parent.parent / "lib").glob("python*")) / "site-packages"
        distributions = needed(name, site) - needed("torch", site)
        sizes = [sum(f.stat().st_size for f in _files(part, site)) for part in distributions]
        results.append(
            {
                "library": f"{name} {getattr(distribution(name, site), 'version', '')}",
                "distributions": len(distributions),
                "megabytes": sum(sizes) / 2**20,
                "modules": int(min(timings[name])[1]),
                "seconds": min(timings[name])[0],
            }
        )
    return results


def distribution(name: str, site: Path) -> metadata.Distribution | None:
    return next(iter(metadata.distributions(name=name, path=[str(site)])), None)


def needed(name: str, site: Path) -> set[str]:
    """A distribution and all that it requires, by the metadata of what is installed; extras are not asked for."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    names: set[str] = set()
    waiting = [Requirement(name)]
    while waiting:
        requirement = waiting.pop()
        installed = distribution(requirement.name, site)
        if installed is None or canonicalize_name(requirement.name) in names:
            continue
        names.add(canonicalize_name(requirement.name))
        for required in map(Requirement, installed.requires or []):
            extras = [{"extra": extra} for extra in ("", *requirement.extras)]
            if required.marker is None or any(required.marker.evaluate(extra) for extra in extras):
                waiting.append(required)
    return names


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
        first_columns = f"| {r['library']} | {r['distributions']} | {r['megabytes']:.0f} | {r['modules']} | "
        lines.append(first_columns + f"{r['seconds']:.2f} |")
    return "\n".join(lines)
