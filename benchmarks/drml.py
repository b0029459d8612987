"""Compare DRML with its base loss: every pair of recipes in recipes/drml, on glyphs and on a feature file.

    python -m benchmarks.drml --features FEATURES.npz
    python -m benchmarks.drml --only proxy-anchor triplet --seeds 2 --steps 100

Baseline and DRML have the same trunk, dimension, loss, sampler, number of steps and number of learning rates to choose
from. The rate of each is chosen by the mean MAP@R on held-out training classes over some draws of them, with a seed
that is not used again; then each is trained once for every seed, the step is chosen on the validation classes of the
first draw, and the test classes are read. Differences are paired by seed; intervals are 95 % Student t over the seeds.
Both start from random weights, also on features.

The output file is written after every run, and the command continues from it when it is started again. A file with
other steps, other recipes or another version of torch is refused. After a change of the library itself, use a new file.
"""

import argparse
import hashlib
import json
import tempfile
from pathlib import Path
from typing import Any

import torch

import kinfold
from kinfold import recipes
from kinfold.data import Dataset
from kinfold.experiments import compute_interval
from kinfold.training import Run

PAIRS = ("triplet", "triplet-sh", "margin-dw", "margin-released", "proxy-anchor", "cosface")
METHODS = {"baseline": "-baseline", "DRML": ""}
NAMES = ("recall@1", "map@r")
TUNING = 1000  # the seed of the runs that choose a learning rate
PROBLEMS: dict[str, dict[str, Any]] = {
    "glyphs": {"rates": (1e-3, 2e-3, 4e-3), "draws": 1, "dim": 128, "steps": 120, "every": 40},
    "features": {"rates": (1e-4, 3e-4, 1e-3, 3e-3), "draws": 2, "dim": 512, "steps": 400, "every": 50},
}


def trained(data: Dataset, problem: dict[str, Any], recipe: str, rate: float, seed: int, draw: int) -> dict[str, Any]:
    """One run: validation and test scores, and the share of items of the fullest branch at the end, where there is one.

    The test scores of a run that chooses a learning rate are not looked at.
    """
    changes = [
        f"optimizer.lr={rate}",
        f"seed={seed}",
        f"data.split_seed={draw}",
        f"model.dim={problem['dim']}",
        f"training.steps={problem['steps']}",
        f"evaluation.every={problem['every']}",
        f"evaluation.metrics={[*NAMES]}",
        "evaluation.diagnose=never",
    ]
    with tempfile.TemporaryDirectory() as folder:
        run = kinfold.train(recipes.find_recipe(recipe), Path(folder) / "run", changes=changes, dataset=data)
        scores = run.scores
        return {
            "validation": scores["validation"],
            "test": scores["test"],
            "step": scores["step"],
            "ended": scores["ended"],
            "fullest": fullest(run),
        }


def fullest(run: Run) -> float | None:
    """Mean over the last lines of the log of the largest share of a batch that one branch got."""
    lines = [event for event in run.events if event["event"] == "step"][-10:]
    shares = [[value for name, value in line.items() if name.startswith("occupancy-")] for line in lines]
    return sum(map(max, shares)) / len(shares) if all(shares) else None


class Results:
    """Runs by name, in a file that is written after each."""

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        self.path = path
        self.content: dict[str, Any] = {"settings": settings, "runs": {}}
        if path.is_file():
            before = json.loads(path.read_text())
            if before["settings"] != json.loads(json.dumps(settings)):
                raise SystemExit(f"{path} holds runs of other settings; move it away, or give another --out")
            self.content = before

    def get(self, data: Dataset, problem: dict[str, Any], recipe: str, rate: float, seed: int, draw: int) -> Any:
        runs, name = self.content["runs"], f"{data.name} {recipe} lr={rate:g} seed={seed} draw={draw}"
        if name not in runs:
            runs[name] = trained(data, problem, recipe, rate, seed, draw)
            self.write()
        return runs[name]

    def write(self) -> None:
        self.path.parent.mkdir(exist_ok=True)
        self.path.write_text(json.dumps(self.content, indent=1))


def compared(
    results: Results, kind: str, data: Dataset, problem: dict[str, Any], pair: str, seeds: int
) -> dict[str, Any]:
    comparison: dict[str, Any] = {"data": kind, "pair": pair}
    for method, ending in METHODS.items():
        recipe = f"drml/{pair}{ending}"

        def validated(rate: float, recipe: str = recipe) -> float:
            drawn = [results.get(data, problem, recipe, rate, TUNING, draw) for draw in range(problem["draws"])]
            scores: list[float] = [run["validation"]["map@r"] for run in drawn]
            return sum(scores) / len(drawn)

        rate = max(problem["rates"], key=validated)
        runs = [results.get(data, problem, recipe, rate, seed, 0) for seed in range(seeds)]
        comparison[method] = {"rate": rate, "runs": runs}
    return comparison


def table(comparisons: list[dict[str, Any]]) -> str:
    columns = [f"{name} {what}" for name in NAMES for what in ("baseline", "DRML", "difference (95 %)")]
    lines = [
        f"| test classes, % | {' | '.join(columns)} | rates | fullest branch |",
        "|---" * (len(columns) + 3) + "|",
    ]
    for entry in comparisons:
        cells = [f"{entry['data']}, {entry['pair']}"]
        for name in NAMES:
            before, after = ([100 * run["test"][name] for run in entry[method]["runs"]] for method in METHODS)
            gain = compute_interval([b - a for a, b in zip(before, after, strict=True)])
            cells += [
                f"{sum(before) / len(before):.2f}",
                f"{sum(after) / len(after):.2f}",
                f"{gain.mean:+.2f} ± {gain.half_width:.2f}",
            ]
        rates = PROBLEMS[entry["data"]]["rates"]
        chosen = [entry[method]["rate"] for method in METHODS]
        cells.append(", ".join(f"{rate:g}{'*' if rate in (min(rates), max(rates)) else ''}" for rate in chosen))
        shares = [run["fullest"] for run in entry["DRML"]["runs"]]
        cells.append(f"{100 * sum(shares) / len(shares):.0f} %")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", "*: at the edge of the rates that were tried; a better one may lie beyond."])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--features", type=Path, help="a file with features, classes and split; left out without it")
    parser.add_argument("--only", nargs="+", choices=PAIRS, default=PAIRS)
    parser.add_argument("--no-glyphs", action="store_true")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, help="of every run, instead of those above")
    parser.add_argument("--out", type=Path, default=Path("results/bench_drml.json"))
    options = parser.parse_args()
    problems = {kind: {**settings, "steps": options.steps or settings["steps"]} for kind, settings in PROBLEMS.items()}
    texts = [recipes.find_recipe(f"drml/{pair}{ending}").read_text() for pair in PAIRS for ending in METHODS.values()]
    digest = hashlib.sha256("".join(texts).encode()).hexdigest()
    about = {"torch": torch.__version__, "threads": torch.get_num_threads(), "problems": problems, "recipes": digest}
    results = Results(options.out, about)
    data: dict[str, Dataset] = {}
    if not options.no_glyphs:
        data["glyphs"] = kinfold.data.load("glyphs")
    if options.features is not None:
        data["features"] = kinfold.data.load("features", options.features)
    comparisons = [
        compared(results, kind, loaded, problems[kind], pair, options.seeds)
        for kind, loaded in data.items()
        for pair in options.only
    ]
    results.content["table"] = table(comparisons)
    results.write()
    print(results.content["table"])


if __name__ == "__main__":
    main()
