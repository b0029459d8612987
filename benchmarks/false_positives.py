"""How often the tests of a bench report a difference where there is none.

    python -m benchmarks.false_positives                                  # simulated differences
    python -m benchmarks.false_positives --root FEATURES.npz --runs 60    # and the noise of real training runs

Simulated, one pair of methods: "alike" draws both methods from one distribution, so that differences are symmetric;
"unlike" gives only one of them noise of this shape, so that means are equal and shapes are not. A family has ten
methods from one normal distribution, 45 pairs: printed is how often any of them is significant after Holm's correction.

Real runs: one method is trained with many seeds. Two groups of these runs are drawn again and again, paired at random,
and tested as if they were two methods.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

import kinfold
from kinfold.experiments import compare_methods
from kinfold.experiments.rank_test import MIN_REPEATS, rank_test

Array = npt.NDArray[np.float64]
Draw = Callable[[np.random.Generator, tuple[int, ...]], Array]
REPEATS = (3, 5, 10)
SHAPES: dict[str, Draw] = {
    "normal": lambda source, shape: source.normal(size=shape),
    "skewed (exponential)": lambda source, shape: source.exponential(size=shape) - 1.0,
    "heavy tails (t, 3 degrees)": lambda source, shape: source.standard_t(3, size=shape),
    "one run in ten fails": lambda source, shape: source.normal(size=shape) - 10.0 * (source.random(shape) < 0.1) + 1.0,
}


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=100_000, help="simulated pairs of methods")
    parser.add_argument("--families", type=int, default=2_000, help="simulated families of ten methods")
    parser.add_argument("--root", type=Path, help="a feature file for real runs")
    parser.add_argument("--runs", type=int, default=60, help="real runs of one method")
    parser.add_argument("--out", type=Path, default=Path("results/false_positives"), help="folder of the real runs")
    options = parser.parse_args()
    source = np.random.default_rng(0)
    header = " | ".join(f"t, {n} repeats" for n in REPEATS)
    print(f"| differences | {header} | rank, 10 repeats |\n|---|{'---:|' * (len(REPEATS) + 1)}")
    for shape, draw in SHAPES.items():
        for kind in ("alike", "unlike"):
            rates = [measure_t_test(_draw_differences(source, draw, kind, (options.draws, n))) for n in REPEATS]
            ranks = measure_rank_test(_draw_differences(source, draw, kind, (options.draws // 50, 10)))
            print(f"| {shape}, {kind} | {' | '.join(f'{100 * rate:.1f} %' for rate in (*rates, ranks))} |", flush=True)
    cells = [f"{100 * measure_family(source, n, options.families):.1f} %" for n in REPEATS]
    print(f"| any of 45 pairs, Holm | {' | '.join(cells)} | |")
    if options.root is not None:
        values = train_runs(options.root, options.runs, options.out)
        rates = [measure_t_test(_pair_runs(source, values, n, options.draws)) for n in REPEATS]
        ranks = measure_rank_test(_pair_runs(source, values, 10, options.draws // 50))
        print(f"| {len(values)} real runs, one method | {' | '.join(f'{100 * r:.1f} %' for r in (*rates, ranks))} |")


def measure_t_test(differences: Array) -> float:
    """Share of rows of paired differences (N, n) that a two-sided t-test finds significant at 5 %."""
    return float((stats.ttest_1samp(differences, 0.0, axis=1).pvalue <= 0.05).mean())


def measure_rank_test(differences: Array) -> float:
    """The same for the signed-rank test."""
    assert differences.shape[1] >= MIN_REPEATS
    zeros = [0.0] * differences.shape[1]
    return float(np.mean([rank_test(row.tolist(), zeros).p <= 0.05 for row in differences]))


def measure_family(source: np.random.Generator, repeats: int, families: int) -> float:
    """Share of families of ten equal methods in which any pair is significant after Holm's correction."""
    count = 0
    for _ in range(families):
        rows = source.normal(size=(10, repeats))
        comparison = compare_methods({f"m{i}": dict(enumerate(row.tolist())) for i, row in enumerate(rows)})
        count += any(pair.adjusted <= 0.05 for pair in comparison.pairs)
    return count / families


def train_runs(root: Path, runs: int, folder: Path) -> Array:
    """Train one method with many seeds and return its test scores; scores of an earlier start are kept."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "scores.json"
    scores: dict[str, float] = json.loads(path.read_text()) if path.is_file() else {}
    for seed in range(runs):
        if str(seed) in scores:
            continue
        settings: dict[str, Any] = {
            "seed": seed,
            "data": {"name": "features", "root": str(root)},
            "loss": {"name": "margin"},
            "miner": {"name": "distance-weighted"},
            "sampler": {"name": "spc", "batch_size": 80, "per_class": 5},
            "training": {"steps": 60},
            "evaluation": {"metrics": ["map@r"], "metric": "map@r", "selection": "last", "diagnose": "never"},
        }
        run = kinfold.train(settings, folder / f"seed-{seed}")
        scores[str(seed)] = run.scores["test"]["map@r"]
        path.write_text(json.dumps(scores))
    return np.array([scores[str(seed)] for seed in range(runs)])


def _draw_differences(source: np.random.Generator, draw: Draw, kind: str, shape: tuple[int, ...]) -> Array:
    return draw(source, shape) - draw(source, shape) if kind == "alike" else draw(source, shape)


def _pair_runs(source: np.random.Generator, values: Array, repeats: int, draws: int) -> Array:
    """Differences of two groups of different runs, (draws, repeats)."""
    order = source.random((draws, len(values))).argsort(axis=1)[:, : 2 * repeats]
    return values[order[:, :repeats]] - values[order[:, repeats:]]


if __name__ == "__main__":
    main()
