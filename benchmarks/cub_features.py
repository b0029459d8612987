"""A linear head on frozen features of CUB-200-2011: does training improve on its start from principal components?

    python -m benchmarks.cub_features FEATURES.npz

FEATURES.npz holds features, classes and split (classes 1 to 100 train, the others test). Learning rate and number of
steps are chosen on training classes alone: for each of four draws of held-out classes the head is trained on the others
and evaluated every 50 steps, and the pair with the best mean MAP@R over the draws is taken. Then the head is trained on
all training classes with that pair, once for each of five seeds, and the test classes are looked at for the first time.
The start is the same for every seed: half-whitened principal components of the training features. Intervals are 95 %
Student t over the seeds, of the difference to the start. Features are taken as they are, and the rates are for them.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

import kinfold
from kinfold import recipes
from kinfold.data import Dataset
from kinfold.experiments import compute_interval
from kinfold.training import Run
from kinfold.training.evaluation import compute_metrics

RATES = (3e-5, 1e-4, 3e-4)
STEPS, EVERY = 600, 50
DRAWS, SEEDS = range(4), range(5)
NAMES = ["recall@1", "recall@2", "recall@4", "recall@8", "map@r"]


def run(data: Dataset, folder: Path, changes: list[str]) -> Run:
    fixed = [f"evaluation.metrics={NAMES}", "evaluation.diagnose=never", "evaluation.patience=none"]
    fixed += ["model.standardize=false", "optimizer.loss_lr=5e-4"]
    return kinfold.train(recipes.find_recipe("features"), folder, changes=[*fixed, *changes], dataset=data)


def choose(data: Dataset, folder: Path) -> tuple[float, int, dict[str, list[float]]]:
    """The learning rate and the number of steps with the best mean MAP@R on held-out training classes."""
    train = data.where(data.split == "train")
    curves: dict[str, list[float]] = {}
    for rate in RATES:
        drawn = []
        for draw in DRAWS:
            changes = [f"optimizer.lr={rate}", f"data.split_seed={draw}", "data.validation=0.25", f"seed={draw}"]
            changes += [f"training.steps={STEPS}", f"evaluation.every={EVERY}"]
            events = run(train, folder / f"{rate}-{draw}", changes).events
            drawn.append([event["map@r"] for event in events if event["event"] == "evaluation"])
        curves[str(rate)] = [sum(values) / len(values) for values in zip(*drawn, strict=True)]
    _, rate, negative_index = max((value, rate, -i) for rate in RATES for i, value in enumerate(curves[str(rate)]))
    return rate, -negative_index * EVERY, curves


def start(data: Dataset, trained: Run) -> dict[str, float]:
    """The test scores of the head before its first step."""
    train, test = data.subset("train"), data.subset("test")
    head = kinfold.models.initialize(
        torch.nn.Linear(train.items[0].shape[0], trained.config.model.dim), _tensor(train), "half-whiten"
    )
    with torch.no_grad():
        return compute_metrics(head(_tensor(test)), test, NAMES, "cosine")


def _tensor(data: Dataset) -> torch.Tensor:
    return torch.from_numpy(data.items.array().copy()).float()  # type: ignore[attr-defined]


def table(results: dict[str, Any]) -> str:
    lines = [
        "A linear head on frozen EfficientNet-lite0 features of CUB-200-2011, margin loss with distance-weighted",
        f"mining (`python -m benchmarks.cub_features FEATURES.npz`). Chosen on training classes: learning rate "
        f"{results['lr']:g}, {results['steps']} steps.",
        f"The longest run took {max(results['seconds']):.0f} s.",
        "",
        "| on the 100 test classes, % | start: half-whitened PCA | trained, mean of 5 seeds | difference (95 %) |",
        "|---|---|---|---|",
    ]
    for name, before in results["start"].items():
        after = 100 * sum(entry[name] for entry in results["seeds"]) / len(results["seeds"])
        mean, half = results["differences"][name]
        lines.append(f"| {name} | {100 * before:.2f} | {after:.2f} | {mean:+.2f} ± {half:.2f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("features", type=Path)
    parser.add_argument("--out", type=Path, default=Path("results/bench_cub_features.json"))
    options = parser.parse_args()
    data = kinfold.data.load("features", options.features)
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as temporary:
        rate, steps, curves = choose(data, Path(temporary))
        runs, seconds = [], []
        for seed in SEEDS:
            begin = time.perf_counter()
            changes = [f"optimizer.lr={rate}", f"training.steps={max(1, steps)}", f"seed={seed}"]
            changes += ["evaluation.selection=last", "data.validation=0"]
            runs.append(run(data, Path(temporary) / f"final-{seed}", changes))
            seconds.append(time.perf_counter() - begin)
        before = start(data, runs[0])
        scores = [entry.scores["test"] for entry in runs]
    results |= {"lr": rate, "steps": steps, "curves": curves, "start": before, "seeds": scores, "seconds": seconds}
    results["about"] = {"torch": torch.__version__, "threads": torch.get_num_threads()}
    differences = {name: compute_interval([100 * (entry[name] - before[name]) for entry in scores]) for name in NAMES}
    results["differences"] = {name: (each.mean, each.half_width) for name, each in differences.items()}
    print(table(results))
    options.out.parent.mkdir(exist_ok=True)
    options.out.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
