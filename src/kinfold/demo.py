"""The whole way on drawn characters, in about a minute: compare methods, search, choose a threshold.

A small network learns from some characters of the data set glyphs, in up to 22 typefaces each. The training step is
selected on other characters, and scores are measured on the rest: does the nearest neighbor of an item show the same
character in another typeface? Every method trains with three seeds, on the same classes, for the same number of steps.
The comparison is the suite `demo.toml`, which `kinfold bench` runs as well.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kinfold import metrics
from kinfold.calibration.result import Calibration
from kinfold.calibration.stored import calibrate_run
from kinfold.embedding.search import SearchIndex, SearchResult
from kinfold.experiments import Bench, Repeat, Suite, compute_interval, run_bench
from kinfold.experiments.bench_folder import BenchFolder
from kinfold.experiments.runner import ProgressCallback
from kinfold.experiments.workers.processes import Processes
from kinfold.report.content.reference_scores import write_references
from kinfold.training.config.parsing import parse_table, read_tables

SUITE = Path(__file__).with_name("demo.toml")
DATA = "glyphs"
PIXELS = "pixels, no network"
FALSE_ACCEPT_RATE = 0.01
NEIGHBORS = 5
MAP_POINTS = 700  # on the map of each method; 2000 take 20 seconds more


@dataclass(frozen=True)
class Demo:
    """What the demo found out.

    Attributes:
        bench: The comparison of all methods.
        pixels: Metrics of the raw pixels of the same test characters.
        best: Name of the method with the best mean.
        run: A run of that method.
        neighbors: The nearest items of one test item, in the space of that run.
        calibration: A threshold for "same character or not" in the same space.
    """

    bench: Bench
    pixels: dict[str, float]
    best: str
    run: Repeat
    neighbors: SearchResult
    calibration: Calibration

    def describe_comparison(self) -> str:
        """Return the tables of the bench, and what training gained."""
        metric = self.bench.suite.metric
        gain = compute_interval([*self.bench.values(DATA, "separated", metric, "gain")[self.best].values()])
        pixels = ", ".join(f"{name} {100 * value:.1f} %" for name, value in self.pixels.items())
        return (
            f"{self.bench.summary()}\n{PIXELS}: {pixels}\n"
            f"{self.best}: training gained {100 * gain.mean:.1f} ± {100 * gain.half_width:.1f} points of {metric}"
        )

    def describe_search(self) -> str:
        """Return the query and its neighbors, with those of another class marked."""
        query = self.neighbors.query
        pairs = zip(self.neighbors.neighbors, self.neighbors.scores, strict=True)
        texts = [f"{item.label} {score:.2f}{'' if query.has_same_class(item) else ' (wrong)'}" for item, score in pairs]
        return f"nearest to item {query.index}, the character {query.label}: {', '.join(texts)}"


def build_suite(steps: int | None = None, classes: int | None = None) -> Suite:
    """Read the suite of the demo.

    Args:
        steps: Training steps of each run; those of the suite if left out.
        classes: Number of characters; those of the suite if left out.

    Raises:
        ValueError: `steps` is smaller than 1.
    """
    tables: dict[str, Any] = dict(read_tables(SUITE))
    base = tables["base"]
    if steps is not None:
        if steps < 1:
            raise ValueError(f"steps must be at least 1, got {steps}")
        base["training"]["steps"], base["schedule"]["warmup"] = steps, steps // 6
        base["evaluation"]["every"] = -(-steps // 2)
    if classes is not None:
        base["data"]["options"]["classes"] = classes
    return parse_table(Suite, tables, "")


def run_demo(folder: Path, suite: Suite, *, jobs: int = 1, watch: ProgressCallback | None = None) -> Demo:
    """Train and compare all methods, then use a network of the best one. Finished runs are not trained again.

    Args:
        folder: Where the bench is written.
        suite: The suite of `build_suite`.
        jobs: How many runs train at a time.
        watch: Called with the state of the bench; see `run_bench`.

    Raises:
        RuntimeError: A run failed.
        Interrupted: A signal interrupted the demo. The next start continues.
    """

    def create_workers(bench_folder: BenchFolder) -> Processes:
        return Processes(jobs, 1, bench_folder.log)

    state = run_bench(suite, folder, create_workers, watch=watch, jobs=jobs)
    if state.failed:
        name, error = next(iter(state.failed.items()))
        raise RuntimeError(f"{name} failed: {error}")
    bench = Bench.open(folder)
    bench.write()
    means = {
        name: compute_interval([*values.values()]).mean
        for name, values in bench.values(DATA, "separated", suite.metric).items()
    }
    best = max(means, key=lambda name: means[name])
    run = bench.open_repeat(DATA, best, suite.seeds[0])
    test = run.data("test")
    pixels = test.items.array().reshape(len(test), -1)  # type: ignore[attr-defined]  # glyphs are rows of an array
    pixel_scores = metrics.evaluate(pixels.astype("float32"), test.labels, metrics=bench.metrics(DATA))
    write_references(folder, DATA, {PIXELS: [pixel_scores]})  # for the report
    index = SearchIndex.open(run)
    neighbors = index.search(len(index) // 2, NEIGHBORS)
    return Demo(bench, pixel_scores, best, run, neighbors, calibrate_run(run, FALSE_ACCEPT_RATE))
