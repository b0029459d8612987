"""Does the recipe `features` train every loss? Start, end and gain of each, at the defaults of the recipe.

    python -m benchmarks.omniglot_features FOLDER omniglot.npz
    python -m benchmarks.every_loss cub=FEATURES.npz omniglot=omniglot.npz

Each file holds features, classes and split. Nothing is tuned for a loss here: the recipe is used as it stands, with one
seed. The step is selected by map@r on a fifth of the training classes, held out; the test classes are read once. What
--out holds of other data and losses is kept.
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
from kinfold.training import Run

METRICS = ["recall@1", "map@r"]
SHOWN = (("validation", "map@r"), ("test", "recall@1"), ("test", "map@r"))


def run(data: Dataset, loss: str, folder: Path, changes: list[str]) -> dict[str, Any]:
    """Scores of one loss, with its validation curve and the seconds it took."""
    begin = time.perf_counter()
    fixed = [f"loss.name={loss}", f"evaluation.metrics={METRICS}", "evaluation.diagnose=never"]
    trained: Run = kinfold.train(recipes.find_recipe("features"), folder, changes=[*fixed, *changes], dataset=data)
    curve = [event["map@r"] for event in trained.events if event["event"] == "evaluation"]
    names = ("step", "steps", "selected_start", "start", "validation", "test", "classes")
    scores = {name: trained.scores[name] for name in names}
    return {**scores, "curve": curve, "seconds": time.perf_counter() - begin}


def table(results: dict[str, dict[str, Any]]) -> str:
    """Markdown: a row for each loss, with start, end and gain on validation and test classes."""
    heading = ["loss", "step"]
    for split, metric in SHOWN:
        heading += [f"{split} {metric}, %", "gain"]
    lines = [f"| {' | '.join(heading)} |", f"|---|{'---:|' * (len(heading) - 1)}"]
    for loss in sorted(results, key=kinfold.list("losses").index):
        scores = results[loss]
        cells = [loss, str(scores["step"]) + " (the start)" * scores["selected_start"]]
        for split, metric in SHOWN:
            before, after = scores["start"][split][metric], scores[split][metric]
            cells += [f"{100 * before:.1f} to {100 * after:.1f}", f"{100 * (after - before):+.1f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def summary(results: dict[str, dict[str, Any]]) -> str:
    """How many losses beat the start, by what is measured."""
    counts = []
    for split, metric in SHOWN:
        better = [loss for loss, scores in results.items() if scores[split][metric] > scores["start"][split][metric]]
        others = [loss for loss in results if loss not in better]
        missing = f" (not {', '.join(others)})" if others else ""
        counts.append(f"{split} {metric}: {len(better)} of {len(results)}{missing}")
    return f"Better than the start: {'; '.join(counts)}."


def tables(data: dict[str, Any]) -> str:
    parts = []
    for name, results in data["losses"].items():
        classes = next(iter(results.values()))["classes"]
        counts = ", ".join(f"{count} {split}" for split, count in classes.items())
        parts += [f"{name} ({counts} classes):", table(results), summary(results)]
    return "\n\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("data", nargs="+", help="a name and a feature file, as in cub=FEATURES.npz")
    parser.add_argument("--losses", default="", help="only these, with commas between them")
    parser.add_argument("--set", action="append", default=[], help="another value in the recipe")
    parser.add_argument("--out", type=Path, default=Path("results/bench_every_loss.json"))
    options = parser.parse_args()
    losses = options.losses.split(",") if options.losses else kinfold.list("losses")
    output: dict[str, Any] = json.loads(options.out.read_text()) if options.out.is_file() else {"losses": {}}
    output["about"] = {"torch": torch.__version__, "threads": torch.get_num_threads()}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    for name, path in (entry.split("=", 1) for entry in options.data):
        data = kinfold.data.load("features", path)
        results = output["losses"].setdefault(name, {})
        with tempfile.TemporaryDirectory() as folder:
            for loss in losses:
                results[loss] = run(data, loss, Path(folder) / loss, options.set)
                curve = " ".join(f"{100 * value:.1f}" for value in results[loss]["curve"])
                print(
                    table({loss: results[loss]}).splitlines()[-1],
                    f"{results[loss]['seconds']:.0f} s:",
                    curve,
                    flush=True,
                )
                options.out.write_text(json.dumps(output, indent=1))
    print(tables(output))


if __name__ == "__main__":
    main()
