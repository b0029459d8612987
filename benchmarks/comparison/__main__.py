"""Compare kinfold with its peers: code to read, cost of losses and of an evaluation, size of an install.

    python -m benchmarks.comparison --environments DIR     # all of it: about ten minutes
    python -m benchmarks.comparison --only reading         # a part: reading, losses, evaluation, installs
    python -m benchmarks.comparison --fill                 # writes the last numbers into docs/comparison.md

DIR holds one virtual environment for each library, named like its distribution; docs/comparison.md shows how to create
them. Without it open-metric-learning and the installs are left out. pytorch-metric-learning takes turns with kinfold in
one process. open-metric-learning runs in its own process, against the same floor. All use one thread. Times are
processor times, because other work on the machine changes them little.
"""

import argparse
import json
import os
import platform
import sys
import warnings
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from benchmarks.comparison.evaluation import evaluation, evaluation_table, retrieval
from benchmarks.comparison.installs import install_table, installs
from benchmarks.comparison.libraries import IMPORTS, OML, OURS, PACKAGES, PML, ROOT, SIZES, child
from benchmarks.comparison.losses import both, loss_table, triplet_table, triplets
from benchmarks.comparison.reading import reading, reading_table

PARTS = ("reading", "losses", "evaluation", "installs")


def measure(parts: list[str], environments: dict[str, Path], small: bool, seconds: float) -> dict[str, Any]:
    results: dict[str, Any] = {}
    others = {OML: environments[OML]} if OML in environments else {}
    pythons: dict[str, Path | str] = {OURS: sys.executable, PML: sys.executable, **others}
    if "reading" in parts:
        results["reading"] = [row for name, python in pythons.items() for row in child(python, "reading", name)]
        print(reading_table(results["reading"]), "\n", flush=True)
    if "installs" in parts and environments:
        results["installs"] = installs(environments, IMPORTS)
        print(install_table(results["installs"]), "\n", flush=True)
    if "losses" in parts:
        results["triplets"] = [row for name, python in pythons.items() for row in child(python, "triplets", name)]
        print(triplet_table(results["triplets"]), "\n", flush=True)
        results["losses"] = both(SIZES[: 1 if small else 2], seconds)
    if "evaluation" in parts:
        results["evaluation"] = evaluation(environments.get(OML), small)
    return results


def fill_page(data: dict[str, Any]) -> None:
    from benchmarks.docs import fill

    page = ROOT / "docs" / "comparison.md"
    tables: dict[str, Callable[[Any], str]] = {"reading": reading_table, "installs": install_table}
    tables |= {"triplets": triplet_table, "losses": loss_table, "evaluation": evaluation_table}
    for part, table in tables.items():
        if part in data:
            versions = ", ".join(f"{key} {value}" for key, value in data["about"][part].items())
            fill(page, part, f"{table(data[part])}\n\nMeasured with {versions}.")


def about() -> dict[str, Any]:
    import kinfold

    versions = {"torch": torch.__version__, OURS: kinfold.__version__, PML: metadata.version(PML)}
    return versions | {"threads": torch.get_num_threads(), "python": platform.python_version()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environments", type=Path, help="folder of one virtual environment for each library")
    parser.add_argument("--only", nargs="*", default=list(PARTS), choices=PARTS)
    parser.add_argument("--small", action="store_true", help="the smaller size of losses and of evaluation alone")
    parser.add_argument("--seconds", type=float, default=1.5, help="time for each loss")
    parser.add_argument("--json", type=Path, default=Path("results/bench_comparison.json"))
    parser.add_argument("--fill", action="store_true", help="write the numbers of an earlier run into the page")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    os.environ["OMP_NUM_THREADS"] = "1"  # of children, and of libraries that are loaded later
    torch.set_num_threads(1)
    if arguments.child:
        what, argument = arguments.child
        work: dict[str, Callable[[str], Any]] = {"reading": reading, "triplets": triplets, "retrieval": retrieval}
        print(json.dumps(work[what](argument)))
        return
    results = json.loads(arguments.json.read_text()) if arguments.json.exists() else {"about": {}}
    if arguments.fill:
        fill_page(results)
        return
    folder = arguments.environments
    environments = {} if folder is None else {name: (folder / name / "bin" / "python").absolute() for name in PACKAGES}
    measured = measure(arguments.only, environments, arguments.small, arguments.seconds)
    results |= {**measured, "about": results["about"] | dict.fromkeys(measured, about())}
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(results, indent=1))
    print(f"written to {arguments.json}; --fill writes it into the page")


if __name__ == "__main__":
    main()
