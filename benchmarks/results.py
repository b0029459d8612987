"""Write the results of benches into docs/results.md, each between the comments with the name of its suite.

    kinfold bench benchmarks/suites/samplers.toml --root cub=FEATURES.npz --out results/samplers
    python -m benchmarks.results results/samplers

Suites whose methods are called "loss, setting" become a grid, the others a table with all metrics. The table of the
README is made from that page.
"""

import re
import sys
from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np
from scipy.stats import pearsonr, spearmanr

from benchmarks.docs import fill
from kinfold.experiments import Bench, Interval, compute_interval
from kinfold.experiments.result_rows import TRAIN_SPACE

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "results.md"
FRONT = {  # suite of each column of the README, metric, heading
    ("cub-features", "recall@1"): "CUB features: recall@1",
    ("cub-features", "map@r"): "map@r",
    ("omniglot", "recall@1"): "Omniglot: recall@1",
    ("glyphs", "recall@1"): "glyphs: recall@1",
}
START = "(start)"  # follows a number of the initial weights
MOST_NAMES = 8  # methods that are listed by name
Values = Mapping[str, Mapping[int, float]]


def format_bench(bench: Bench) -> str:
    """All results of a bench as Markdown."""
    parts = []
    for data in bench.suite.datasets:
        grid = all(", " in name for name in bench.suite.methods)
        for result in bench.results:
            parts.append(_format_grids(bench, data, result) if grid else bench.table(data, result, "markdown"))
            parts.append(_describe_best(bench, data, result))
        parts.append(_describe_spectra(bench, data))
    return "\n\n".join([*(part for part in parts if part), describe_effort(bench)])


def _format_grids(bench: Bench, data: str, result: str) -> str:
    metric = bench.suite.metric
    untrained = bench.list_untrained(data)
    text = _format_grid(
        f"{data}: {metric} on the test classes, %", bench.values(data, result, metric), 100.0, untrained
    )
    if untrained:
        text += f"\n\n{START}: some repeat selected the start, so the setting is compared with no other."
    space = bench.values(data, TRAIN_SPACE, "rho@2")
    return (
        f"{text}\n\n{_format_grid(f'{data}: rho@2 of the training classes', space, 1.0)}"
        if any(space.values())
        else text
    )


def _format_grid(title: str, values: Values, factor: float, marked: Collection[str] = ()) -> str:
    names = [name.split(", ", 1) for name in values]
    rows, columns = ([*dict.fromkeys(column)] for column in zip(*names, strict=True))
    lines = [f"| {title} | {' | '.join(columns)} |", f"|---|{'---|' * len(columns)}"]
    for row in rows:
        cells = []
        for name in (f"{row}, {column}" for column in columns):
            cells.append(_format_interval(values.get(name, {}), factor) + f" {START}" * (name in marked))
        lines.append(f"| {row} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _format_interval(values: Mapping[int, float], factor: float) -> str:
    if not values:
        return "-"
    interval: Interval = compute_interval([*values.values()])
    digits = 1 if factor > 1 else 3
    return f"{factor * interval.mean:.{digits}f} ± {factor * interval.half_width:.{digits}f}"


def _describe_best(bench: Bench, data: str, result: str) -> str:
    """From which methods the best one differs significantly, and from which not."""
    comparison = bench.compare(data, result)
    if comparison is None:
        return ""
    best = comparison.best_trained
    others = [name for name in comparison.methods if name != best and name not in comparison.untrained]
    close = [name for name in others if not comparison.is_significant(best, name)]
    beaten = len(others) - len(close)
    kind = f" ({result})" if len(bench.results) > 1 else ""
    text = f"Best {bench.suite.metric}{kind}: {best}, significantly different from {beaten} of {len(others)} others"
    names = "; ".join(close) if len(close) <= MOST_NAMES else f"the remaining {len(close)}"
    left_out = "".join(f" Not compared: {name}: {reason}." for name, reason in bench.list_untrained(data).items())
    return (f"{text}; not from {names}." if close else f"{text}.") + left_out


def _describe_spectra(bench: Bench, data: str) -> str:
    """Whether a flatter spectrum of the training classes goes with better recall, over methods."""
    recall, rho = (bench.values(data, *key) for key in (("separated", "recall@1"), (TRAIN_SPACE, "rho@2")))
    steps = {name: bench.suite.build_config(data, name).training.steps for name in bench.suite.methods}
    names = [name for name in bench.suite.methods if recall[name] and rho[name] and steps[name] != 0]
    if len(names) < 4:
        return ""
    x = np.array([np.mean([*rho[name].values()]) for name in names])
    y = np.array([np.mean([*recall[name].values()]) for name in names])
    return (
        f"rho@2 on training classes against recall@1 on test classes over the {len(names)} methods that train: Pearson "
        f"{pearsonr(x, y).statistic:+.2f}, Spearman {spearmanr(x, y).statistic:+.2f}."
    )


def describe_effort(bench: Bench) -> str:
    """How many tasks a bench had, and how long they took."""
    seconds = {row["folder"]: row["seconds"] for row in bench.rows}
    failed = f"; {len(bench.failures)} failed" if bench.failures else ""
    return (
        f"{len(seconds)} tasks{failed}; {sum(seconds.values()) / 60:.0f} minutes, one thread each, "
        "summed over the tasks."
    )


def build_front_table(page: str) -> str:
    """The methods of all three data sets, and the untrained features, from the first table of each suite."""
    columns = {key: _read_column(page, *key) for key in FRONT}
    common = [name for name in columns["cub-features", "map@r"] if all(name in column for column in columns.values())]
    lines = [f"| % on classes never seen | {' | '.join(FRONT.values())} |", f"|---|{'---:|' * len(FRONT)}"]
    for name in ["untrained", *common]:
        lines.append(f"| {name} | {' | '.join(column.get(name, '') for column in columns.values())} |")
    return "\n".join(lines)


def _read_column(page: str, suite: str, metric: str) -> dict[str, str]:
    part = re.search(rf"<!-- {suite} -->(.*?)<!-- /{suite} -->", page, flags=re.DOTALL)
    assert part is not None, f"{PAGE.name} has no part {suite}"
    rows = re.findall(r"^\|(.*)\|$", part[1].split("\n\nBest", 1)[0], flags=re.MULTILINE)
    cells = [[cell.strip() for cell in row.split("|")] for row in rows]
    index = cells[0].index(f"{metric}, %")
    return {row[0]: row[index] for row in cells[2:]}


def main(folders: list[str]) -> None:
    for folder in folders:
        bench = Bench.open(folder)
        fill(PAGE, bench.suite.name, format_bench(bench))
    fill(ROOT / "README.md", "results", build_front_table(PAGE.read_text()))


if __name__ == "__main__":
    main(sys.argv[1:])
