"""A short comparison of losses on characters that the network has not seen in training.

A small network learns from some characters of the data set glyphs, in up to 22 typefaces each. The training step is
selected on other characters, and scores are measured on the rest: does the nearest neighbor of an item show the same
character in another typeface? Every method trains with two seeds, on the same classes, for the same number of steps.
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
METRICS = ("recall@1", "map@r")
PIXELS = "pixels, no network"
UNTRAINED = "network, not trained"
MEAN_AND_RANGE = f"mean (range of {len(SEEDS)} seeds)"
REUSED = ", already trained"  # follows the name of a run of an earlier start
# method -> what differs from the recipe "glyphs"
METHODS: dict[str, list[str]] = {
    "dro-topk": ["loss.name=dro-topk"],
    "margin + distance-weighted": [
        "loss.name=margin",
        "miner.name=distance-weighted",
        "optimizer.loss_lr=1e-2",
    ],
    # with nearly a thousand classes, proxies gain more from many classes in a batch than from several items of each
    "proxy-anchor": [
        "loss.name=proxy-anchor",
        "sampler.name=random",
        "sampler.per_class=none",
        "optimizer.lr=1e-3",
        "optimizer.loss_lr=1e-2",
    ],
    "multi-similarity": ["loss.name=multi-similarity"],
}

ProgressCallback = Callable[[str, float], None]  # stage, fraction of it that is complete


@dataclass(frozen=True)
class DemoRow:
    """Scores of one method on the test classes.

    Attributes:
        method: Name of the method.
        scores: Metric -> value, for each seed.
    """

    method: str
    scores: list[dict[str, float]]

    def mean(self, metric: str) -> float:
        """Mean over the seeds."""
        return sum(entry[metric] for entry in self.scores) / len(self.scores)

    def spread(self, metric: str) -> tuple[float, float]:
        """Smallest and largest value over the seeds."""
        values = [entry[metric] for entry in self.scores]
        return min(values), max(values)


def list_run_names() -> list[str]:
    """List the runs in order, as `progress` gets them; `REUSED` follows the name of a run of an earlier start."""
    return [_format_name(method, seed) for method in METHODS for seed in SEEDS]


def run_demo(
    folder: Path,
    steps: int = STEPS,
    progress: ProgressCallback | None = None,
    glyphs: data.Dataset | None = None,
) -> list[DemoRow]:
    """Train and compare all methods. Finished runs in the folder are not trained again.

    Args:
        folder: Where the runs, table.md and scores.csv are written.
        steps: Training steps of each run.
        progress: Called with a stage and the fraction of it that is complete.
        glyphs: The data set; all glyphs unless given.

    Returns:
        One row for each method, the best first.

    Raises:
        ValueError: If `steps` is smaller than 1.
    """
    if steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps}")
    glyphs = data.load("glyphs") if glyphs is None else glyphs
    test = glyphs.subset("test")
    progress = progress or (lambda stage, fraction: None)
    progress(PIXELS, 0.0)
    pixels = test.items.array().reshape(len(test), -1)  # type: ignore[attr-defined]  # glyphs are rows of an array
    pixel_row = DemoRow(PIXELS, [metrics.evaluate(pixels.astype("float32"), test.labels, metrics=METRICS)])
    progress(PIXELS, 1.0)
    untrained: list[dict[str, float]] = []
    trained: list[DemoRow] = []
    for method, changes in METHODS.items():
        scores = []
        for seed in SEEDS:
            stage = _format_name(method, seed)
            fixed = [f"seed={seed}", f"training.steps={steps}", f"evaluation.every={-(-steps // 3)}"]
            fixed += [f"schedule.warmup={steps // 10}"] if steps < STEPS else []  # a short run needs a short warmup
            run_folder = folder / stage.replace(" + ", "-").replace(", seed ", "-")
            run = _train_run(run_folder, [*changes, *fixed], glyphs, progress, stage)
            scores.append(run.scores["test"])
            if len(untrained) < len(SEEDS):
                progress(_format_name(UNTRAINED, seed), 0.0)
                untrained.append(_measure_start(run))
                progress(_format_name(UNTRAINED, seed), 1.0)
        trained.append(DemoRow(method, scores))
    references = [pixel_row, DemoRow(UNTRAINED, untrained)]
    rows = sorted([*references, *trained], key=lambda row: -row.mean(METRICS[0]))
    write_references(folder, "glyphs", {row.method: row.scores for row in references})  # for the report
    write_text(folder / "table.md", to_markdown(rows))
    write_text(folder / "scores.csv", to_csv(rows))
    return rows


def to_markdown(rows: list[DemoRow]) -> str:
    """Write the table as Markdown, with the range of the seeds beside the mean."""
    lines = ["# kinfold demo", "", (__doc__ or "").strip(), ""]
    headings = (f"{name}, %: {MEAN_AND_RANGE}" for name in METRICS)
    lines += [f"| method | {' | '.join(headings)} |", f"|---{'|---' * len(METRICS)}|"]
    return "\n".join([*lines, *(f"| {row.method} | {' | '.join(format_scores(row))} |" for row in rows), ""])


def format_scores(row: DemoRow) -> list[str]:
    """Format the mean of each metric in percent, with the range where there are several seeds."""
    texts = []
    for name in METRICS:
        low, high = row.spread(name)
        spread = f" ({100 * low:.1f} to {100 * high:.1f})" if len(row.scores) > 1 else ""
        texts.append(f"{100 * row.mean(name):.1f}{spread}")
    return texts


def to_csv(rows: list[DemoRow]) -> str:
    """Write every score as CSV: method, seed, metric, value."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["method", "seed", "metric", "value"])
    for row in rows:
        for seed, scores in zip(SEEDS, row.scores, strict=False):
            writer.writerows([row.method, seed, name, scores[name]] for name in METRICS)
    return file.getvalue()


def _format_name(method: str, seed: int) -> str:
    return f"{method}, seed {seed}"


def _train_run(folder: Path, changes: list[str], glyphs: data.Dataset, progress: ProgressCallback, stage: str) -> Run:
    def report(event: Event) -> None:
        if event.kind == "step":
            progress(stage, event.step / event.steps)

    stage += REUSED if RunFolder(folder).finished else ""
    progress(stage, 0.0)
    if folder.exists():
        run = train(None, folder, resume=True, dataset=glyphs, callbacks=[report])
    else:
        changes = [*changes, "evaluation.diagnose=never", f"evaluation.metrics={[*METRICS]}"]
        run = train(recipes.find_recipe("glyphs"), folder, changes=changes, dataset=glyphs, callbacks=[report])
    progress(stage, 1.0)
    return run


def _measure_start(run: Run) -> dict[str, float]:
    """Scores of the network before its first training step."""
    test = run.data("test")
    embeddings = compute_embeddings(components.build_model(run.config), test, run.pipeline)
    return compute_metrics(embeddings, test, METRICS, run.distance)
