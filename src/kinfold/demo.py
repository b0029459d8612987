"""A first look: one small network, several losses, characters it has never seen.

The network learns from some characters of the glyphs data set, in up to 22 typefaces each, the step to stop at is
chosen on others, and the scores are of the rest: does an item's nearest neighbour show the same character in another
typeface? Every method trains with two seeds, on the same classes, for the same number of steps.
"""

import csv
import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kinfold import data, metrics, recipes
from kinfold.embedding.compute import compute_embeddings
from kinfold.files.atomic import write_text
from kinfold.report.content.reference_scores import write_references
from kinfold.training import Event, Run, components, train
from kinfold.training.evaluation import compute_metrics
from kinfold.training.run_folder import RunFolder

STEPS = 150
SEEDS = (0, 1)
NAMES = ("recall@1", "map@r")
PIXELS = "pixels, no network"
UNTRAINED = "network, not trained"
SHOWN = f"mean (range of {len(SEEDS)} seeds)"
KEPT = ", already trained"  # follows the name of a run that is not made again
# title -> what differs from the recipe "glyphs"
METHODS: dict[str, list[str]] = {
    "dro-topk": ["loss.name=dro-topk"],
    "margin + distance-weighted": [
        "loss.name=margin",
        "miner.name=distance-weighted",
        "optimizer.loss_lr=1e-2",
    ],
    # with nearly a thousand classes, many of them in a batch matter more to proxies than several items of each
    "proxy-anchor": [
        "loss.name=proxy-anchor",
        "sampler.name=random",
        "sampler.per_class=none",
        "optimizer.lr=1e-3",
        "optimizer.loss_lr=1e-2",
    ],
    "multi-similarity": ["loss.name=multi-similarity"],
}

Tell = Callable[[str, float], None]


@dataclass(frozen=True)
class DemoRow:
    """Scores of one method on the test classes, one dictionary for each seed."""

    method: str
    scores: list[dict[str, float]]

    def mean(self, name: str) -> float:
        return sum(entry[name] for entry in self.scores) / len(self.scores)

    def spread(self, name: str) -> tuple[float, float]:
        values = [entry[name] for entry in self.scores]
        return min(values), max(values)


def run_names() -> list[str]:
    """The runs in their order, as `tell` is told of them; of those that are not made again KEPT follows."""
    return [_named(method, seed) for method in METHODS for seed in SEEDS]


def _named(method: str, seed: int) -> str:
    return f"{method}, seed {seed}"


def demo(
    folder: Path, steps: int = STEPS, tell: Tell | None = None, glyphs: data.Dataset | None = None
) -> list[DemoRow]:
    """Train and compare; every run is a folder below `folder`, and what is finished is not done again.

    `tell`: is told how far each stage is. `glyphs`: these characters instead of all. The best row comes first.
    """
    if steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps}")
    glyphs = data.load("glyphs") if glyphs is None else glyphs
    test = glyphs.subset("test")
    tell = tell or (lambda stage, share: None)
    tell(PIXELS, 0.0)
    pictures = test.items.array().reshape(len(test), -1)  # type: ignore[attr-defined]  # glyphs are rows of an array
    pixels = DemoRow(PIXELS, [metrics.evaluate(pictures.astype("float32"), test.labels, metrics=NAMES)])
    tell(PIXELS, 1.0)
    untrained: list[dict[str, float]] = []
    trained: list[DemoRow] = []
    for method, changes in METHODS.items():
        found = []
        for seed in SEEDS:
            stage = _named(method, seed)
            fixed = [f"seed={seed}", f"training.steps={steps}", f"evaluation.every={-(-steps // 3)}"]
            fixed += [f"schedule.warmup={steps // 10}"] if steps < STEPS else []  # a quick look has little time to rise
            run = _run(
                folder / stage.replace(" + ", "-").replace(", seed ", "-"), [*changes, *fixed], glyphs, tell, stage
            )
            found.append(run.scores["test"])
            if len(untrained) < len(SEEDS):
                tell(_named(UNTRAINED, seed), 0.0)
                untrained.append(_untrained(run))
                tell(_named(UNTRAINED, seed), 1.0)
        trained.append(DemoRow(method, found))
    beside = [pixels, DemoRow(UNTRAINED, untrained)]
    rows = sorted([*beside, *trained], key=lambda row: -row.mean(NAMES[0]))
    write_references(folder, "glyphs", {row.method: row.scores for row in beside})  # for the report
    write_text(folder / "table.md", markdown(rows))
    write_text(folder / "scores.csv", as_csv(rows))
    return rows


def markdown(rows: list[DemoRow]) -> str:
    """The table, with the range of the seeds beside the mean."""
    lines = ["# kinfold demo", "", (__doc__ or "").strip(), ""]
    lines += [f"| method | {' | '.join(f'{name}, %: {SHOWN}' for name in NAMES)} |", f"|---{'|---' * len(NAMES)}|"]
    return "\n".join([*lines, *(f"| {row.method} | {' | '.join(cells(row))} |" for row in rows), ""])


def cells(row: DemoRow) -> list[str]:
    """The mean of each metric in percent, with the smallest and the largest where there are several seeds."""
    found = []
    for name in NAMES:
        low, high = row.spread(name)
        several = f" ({100 * low:.1f} to {100 * high:.1f})" if len(row.scores) > 1 else ""
        found.append(f"{100 * row.mean(name):.1f}{several}")
    return found


def as_csv(rows: list[DemoRow]) -> str:
    """Every score: method, seed, metric, value."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["method", "seed", "metric", "value"])
    for row in rows:
        for seed, scores in zip(SEEDS, row.scores, strict=False):
            writer.writerows([row.method, seed, name, scores[name]] for name in NAMES)
    return file.getvalue()


def _run(folder: Path, changes: list[str], glyphs: data.Dataset, tell: Tell, stage: str) -> Run:
    def follow(event: Event) -> None:
        if event.kind == "step":
            tell(stage, event.step / event.steps)

    stage += KEPT if RunFolder(folder).finished else ""
    tell(stage, 0.0)
    if folder.exists():
        run = train(None, folder, resume=True, dataset=glyphs, callbacks=[follow])
    else:
        changes = [*changes, "evaluation.diagnose=never", f"evaluation.metrics={[*NAMES]}"]
        run = train(recipes.find_recipe("glyphs"), folder, changes=changes, dataset=glyphs, callbacks=[follow])
    tell(stage, 1.0)
    return run


def _untrained(run: Run) -> dict[str, float]:
    """The scores of the network as it was before the first step."""
    test = run.data("test")
    return compute_metrics(
        compute_embeddings(components.build_model(run.config), test, run.pipeline), test, NAMES, run.distance
    )
