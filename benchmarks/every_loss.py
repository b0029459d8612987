"""Do the recipes train every loss? Start, end and gain of each loss, recipe by recipe.

    python -m benchmarks.omniglot_features FOLDER omniglot.npz
    python -m benchmarks.cub_photos CUB.tar photos
    python -m benchmarks.every_loss features:cub=FEATURES.npz features:omniglot=omniglot.npz glyphs images:cub=photos

An argument is a recipe, followed by a name and a path of the data where the recipe needs them. No setting here depends
on the loss: the recipe selects the learning rate and the miner. `features` is used as it stands, `glyphs` and `images`
with the settings of SHORTENED, and there is one seed. The step is selected by map@r on validation classes; the test
classes are evaluated once. Results of other data and losses that --out already holds are kept.
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
from kinfold.data import Dataset, Pipeline, create_pipeline
from kinfold.data.pipelines import PIPELINES
from kinfold.data.transforms import BICUBIC, CenterCrop, Compose, RandomFlip, RandomResizedCrop, Resize
from kinfold.training import Run

METRICS = ["recall@1", "map@r"]
SHOWN = (("validation", "map@r"), ("test", "recall@1"), ("test", "map@r"))
READERS = {"features": "features", "glyphs": "glyphs", "images": "folder"}
SMALL_PHOTOS = "efficientnet-lite-96"
# What makes a run of every loss affordable on one core. `glyphs` has a quarter of its steps and of its classes, so that
# every item is seen as often as in the recipe.
SHORTENED = {
    "features": [],
    "glyphs": ["training.steps=150", "schedule.warmup=12", "evaluation.every=30"],
    "images": [
        f"data.pipeline={SMALL_PHOTOS}",
        "data.size=96",
        "data.short_side=96",
        "data.workers=0",
        "sampler.batch_size=40",
        "training.precision=float32",
        "training.steps=60",
        "evaluation.every=20",
    ],
}


def register_small_photos() -> None:
    """Add the pipeline of the recipe `images` at 96 pixels instead of 224."""
    PIPELINES[SMALL_PHOTOS] = Pipeline(
        Compose((RandomResizedCrop(96, resample=BICUBIC), RandomFlip())),
        Compose((Resize(96, BICUBIC), CenterCrop(96))),
        create_pipeline("efficientnet-lite").normalize,
    )


def load(recipe: str, path: str | None) -> Dataset:
    """The data of a recipe; of the glyphs two classes in eight, one that trains and one that tests."""
    data = kinfold.data.load(READERS[recipe], path)
    return data.where(data.labels % 8 < 2, relabel=True) if recipe == "glyphs" else data


def run(recipe: str, data: Dataset, loss: str, folder: Path, changes: list[str]) -> dict[str, Any]:
    """Scores of one loss, with its validation curve, its learning rate and the seconds it took."""
    begin = time.perf_counter()
    fixed = [f"loss.name={loss}", f"evaluation.metrics={METRICS}", "evaluation.diagnose=never", *SHORTENED[recipe]]
    trained: Run = kinfold.train(recipes.find_recipe(recipe), folder, changes=[*fixed, *changes], dataset=data)
    curve = [event["map@r"] for event in trained.events if event["event"] == "evaluation"]
    names = ("step", "steps", "selected_start", "start", "validation", "test", "classes")
    scores = {name: trained.scores[name] for name in names}
    rate = trained.config.optimizer.lr
    return {**scores, "lr": rate, "curve": curve, "seconds": time.perf_counter() - begin}


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


def tables(by_data: dict[str, dict[str, Any]]) -> str:
    """Markdown of one recipe: a table and a summary for each of its data sets."""
    parts = []
    for name, results in by_data.items():
        classes = next(iter(results.values()))["classes"]
        counts = ", ".join(f"{count} {split}" for split, count in classes.items())
        parts += [f"{name} ({counts} classes):", table(results), summary(results)]
    return "\n\n".join(parts)


def parse_argument(argument: str) -> tuple[str, str, str | None]:
    """Split RECIPE or RECIPE:NAME=PATH into the recipe, the name of the data and its path.

    >>> parse_argument("features:cub=cub.npz"), parse_argument("glyphs")
    (('features', 'cub', 'cub.npz'), ('glyphs', 'glyphs', None))
    """
    recipe, _, data = argument.partition(":")
    name, _, path = data.partition("=")
    if recipe not in SHORTENED:
        raise ValueError(f"no settings for the recipe {recipe!r}; there are {', '.join(SHORTENED)}")
    return recipe, name or recipe, path or None


def main() -> None:
    register_small_photos()
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("data", nargs="+", help="a recipe and its data, as in features:cub=FEATURES.npz, or glyphs")
    parser.add_argument("--losses", default="", help="only these, with commas between them")
    parser.add_argument("--set", action="append", default=[], help="another value in the recipe")
    parser.add_argument("--out", type=Path, default=Path("results/bench_every_loss.json"))
    options = parser.parse_args()
    losses = options.losses.split(",") if options.losses else kinfold.list("losses")
    output: dict[str, Any] = json.loads(options.out.read_text()) if options.out.is_file() else {"recipes": {}}
    output["about"] = {"torch": torch.__version__, "threads": torch.get_num_threads()}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    for recipe, name, path in map(parse_argument, options.data):
        data = load(recipe, path)
        results = output["recipes"].setdefault(recipe, {}).setdefault(name, {})
        with tempfile.TemporaryDirectory() as folder:
            for loss in losses:
                results[loss] = run(recipe, data, loss, Path(folder) / loss, options.set)
                row = table({loss: results[loss]}).splitlines()[-1]
                curve = " ".join(f"{100 * value:.1f}" for value in results[loss]["curve"])
                print(row, f"lr {results[loss]['lr']:g}, {results[loss]['seconds']:.0f} s:", curve, flush=True)
                options.out.write_text(json.dumps(output, indent=1))
    for recipe, by_data in output["recipes"].items():
        print(f"\nRecipe {recipe}\n\n{tables(by_data)}")


if __name__ == "__main__":
    main()
