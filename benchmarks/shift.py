"""Scores of methods on a ladder of class splits from near to far, and their slopes.

    python -m benchmarks.shift --root FEATURES.npz --steps 200 --seeds 3

One bench for each of the protocols shift-0 to shift-4. Printed are the distance of the halves at each level, the score
of every method, and the slope of the score over the distance with its interval over seeds; --write puts them into
docs/results.md. A bench that was stopped continues.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.docs import fill
from benchmarks.results import PAGE, describe_effort
from kinfold.data import load, make_shifts
from kinfold.data.class_shift import average_classes
from kinfold.data.folds import SHIFTS
from kinfold.experiments import Bench, Interval, Suite, compare_methods, compute_interval, run_bench

METHODS: dict[str, dict[str, Any]] = {
    "untrained": {
        "loss": {"name": "contrastive"},
        "model": {"head": "identity", "init": "random"},
        "training": {"steps": 0},
    },
    "half-whiten": {"loss": {"name": "contrastive"}, "model": {"init": "half-whiten"}, "training": {"steps": 0}},
    "contrastive": {"loss": {"name": "contrastive"}},
    "margin": {"loss": {"name": "margin"}, "miner": {"name": "distance-weighted"}},
    "multi-similarity": {"loss": {"name": "multi-similarity"}},
    "dro-topk": {"loss": {"name": "dro-topk"}},
    "proxy-anchor": {"loss": {"name": "proxy-anchor"}},
}


def main() -> None:
    """Run the benches and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True, help="a feature file")
    parser.add_argument("--out", type=Path, default=Path("results/shift"))
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--write", action="store_true", help="write the tables into docs/results.md")
    options = parser.parse_args()
    dataset = load("features", options.root)
    distances = [shift.distance for shift in make_shifts(average_classes(dataset))]
    benches = []
    for protocol in SHIFTS:
        suite = Suite(
            name=protocol,
            protocol=protocol,
            seeds=list(range(options.seeds)),
            base={"recipe": "features", "training": {"steps": options.steps}},
            data=[{"name": "features", "data": {"name": "features", "root": str(options.root.resolve())}}],
            method=list_methods(len(dataset.items[0])),
        )
        run_bench(suite, options.out / protocol, jobs=options.jobs)
        benches.append(Bench.open(options.out / protocol))
    text = format_tables(benches, distances)
    print(text)
    if options.write:
        fill(PAGE, "shift", text)


def list_methods(width: int) -> list[dict[str, Any]]:
    """Return the methods of the suites for features of this width, which those without a head keep."""
    methods = [{"name": name, **tables} for name, tables in METHODS.items()]
    return [
        {**m, "model": {**m["model"], "dim": width}} if m.get("model", {}).get("head") == "identity" else m
        for m in methods
    ]


def format_tables(benches: list[Bench], distances: list[float]) -> str:
    """Return scores of all levels, and slopes per unit of distance with intervals over seeds."""
    tables = [format_table(benches, distances, column) for column in ("value", "gain")]
    efforts = [describe_effort(bench) for bench in benches]
    return "\n\n".join([*tables, "\n".join(f"- {b.suite.name}: {e}" for b, e in zip(benches, efforts, strict=True))])


def format_table(benches: list[Bench], distances: list[float], column: str) -> str:
    """Return the table of the scores ("value"), or of the gains over the same models before training ("gain")."""
    metric = benches[0].suite.metric
    values = [bench.values("features", "separated", metric, column) for bench in benches]
    title = f"{metric}, %" if column == "value" else f"gain in {metric}, points"
    lines = [f"| {title} | {' | '.join(f'distance {d:.2f}' for d in distances)} | slope |"]
    lines.append(f"|---|{'---:|' * (len(benches) + 1)}")
    slopes = {}
    for method in METHODS if column == "value" else [m for m in METHODS if "training" not in METHODS[m]]:
        seeds = [*values[0][method]]
        slopes[method] = {
            seed: float(np.polyfit(distances, [100 * level[method][seed] for level in values], 1)[0]) for seed in seeds
        }
        cells = [format_interval(compute_interval([100 * v for v in level[method].values()])) for level in values]
        slope = format_interval(compute_interval([*slopes[method].values()]))
        lines.append(f"| {method} | {' | '.join(cells)} | {slope} |")
    comparison = compare_methods(slopes)
    pairs = [f"{p.first} and {p.second}" for p in comparison.pairs if p.adjusted <= 0.05]
    return "\n".join(
        [*lines, "", f"Slopes that differ significantly (paired by seed, Holm): {', '.join(pairs) or 'none'}."]
    )


def format_interval(interval: Interval) -> str:
    """Format a mean and its half width."""
    return f"{interval.mean:.1f}" if interval.count < 2 else f"{interval.mean:.1f} ± {interval.half_width:.1f}"


if __name__ == "__main__":
    main()
