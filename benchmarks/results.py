"""Write the results of benches into docs/results.md, each between the marks of its suite's name.

    kinfold bench benchmarks/suites/samplers.toml --root cub=FEATURES.npz --out results/samplers
    python -m benchmarks.results results/samplers

Suites whose methods are called "loss, setting" are shown as a grid; the others as a table with all metrics.
The README has a table made of what then stands on that page.
"""

import re
import sys
from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np
from scipy.stats import pearsonr, spearmanr

from benchmarks.docs import fill
from kinfold.experiments import Bench, Interval, compute_interval
from kinfold.experiments.results import SPACE

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "results.md"
FRONT = {  # suite of each column of the README, metric, heading
    ("cub-features", "recall@1"): "CUB features: recall@1",
    ("cub-features", "map@r"): "map@r",
    ("omniglot", "recall@1"): "Omniglot: recall@1",
    ("glyphs", "recall@1"): "glyphs: recall@1",
}
START = "(start)"  # stands after a number that is the start's
MANY = 8  # methods that are listed by name
Values = Mapping[str, Mapping[int, float]]


def shown(bench: Bench) -> str:
    """Everything that a bench says, as Markdown."""
    parts = []
    for data in bench.suite.sources:
        grid = all(", " in name for name in bench.suite.methods)
        for result in bench.results:
            parts.append(_grids(bench, data, result) if grid else bench.table(data, result, "markdown"))
            parts.append(_best(bench, data, result))
        parts.append(_spectra(bench, data))
    return "\n\n".join([*(part for part in parts if part), _effort(bench)])


def _grids(bench: Bench, data: str, result: str) -> str:
    metric = bench.suite.metric
    untrained = bench.untrained(data)
    text = _grid(f"{data}: {metric} on the test classes, %", bench.values(data, result, metric), 100.0, untrained)
    if untrained:
        text += f"\n\n{START}: some repeat selected the start, so the setting is compared with no other."
    space = bench.values(data, SPACE, "rho@2")
    return f"{text}\n\n{_grid(f'{data}: rho@2 of the training classes', space, 1.0)}" if any(space.values()) else text


def _grid(title: str, values: Values, factor: float, marked: Collection[str] = ()) -> str:
    names = [name.split(", ", 1) for name in values]
    rows, columns = ([*dict.fromkeys(column)] for column in zip(*names, strict=True))
    lines = [f"| {title} | {' | '.join(columns)} |", f"|---|{'---|' * len(columns)}"]
    for row in rows:
        cells = []
        for name in (f"{row}, {column}" for column in columns):
            cells.append(_cell(values.get(name, {}), factor) + f" {START}" * (name in marked))
        lines.append(f"| {row} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(values: Mapping[int, float], factor: float) -> str:
    if not values:
        return "-"
    found: Interval = compute_interval([*values.values()])
    places = 1 if factor > 1 else 3
    return f"{factor * found.mean:.{places}f} ± {factor * found.half_width:.{places}f}"


def _best(bench: Bench, data: str, result: str) -> str:
    """Which methods the best one is told apart from, and which not."""
    found = bench.compared(data, result)
    if found is None:
        return ""
    best = found.leader
    others = [name for name in found.methods if name != best and name not in found.untrained]
    close = [name for name in others if not found.find_significant(best, name)]
    beaten = len(others) - len(close)
    kind = f" ({result})" if len(bench.results) > 1 else ""
    text = f"Best {bench.suite.metric}{kind}: {best}, told apart from {beaten} of {len(others)} others"
    named = "; ".join(close) if len(close) <= MANY else f"the {len(close)} that are left"
    left_out = "".join(f" Not compared: {name}: {why}." for name, why in bench.untrained(data).items())
    return (f"{text}; not from {named}." if close else f"{text}.") + left_out


def _spectra(bench: Bench, data: str) -> str:
    """Whether a flatter spectrum of the training classes goes with better recall, over methods."""
    recall, rho = (bench.values(data, *where) for where in (("separated", "recall@1"), (SPACE, "rho@2")))
    steps = {name: bench.suite.configuration(data, name).training.steps for name in bench.suite.methods}
    names = [name for name in bench.suite.methods if recall[name] and rho[name] and steps[name] != 0]
    if len(names) < 4:
        return ""
    x = np.array([np.mean([*rho[name].values()]) for name in names])
    y = np.array([np.mean([*recall[name].values()]) for name in names])
    return (
        f"rho@2 on training classes against recall@1 on test classes over the {len(names)} methods that train: Pearson "
        f"{pearsonr(x, y).statistic:+.2f}, Spearman {spearmanr(x, y).statistic:+.2f}."
    )


def _effort(bench: Bench) -> str:
    cells = {row["folder"]: row["seconds"] for row in bench.rows}
    failed = f"; {len(bench.failures)} failed" if bench.failures else ""
    return (
        f"{len(cells)} cells{failed}; {sum(cells.values()) / 60:.0f} minutes, one thread each, summed over the cells."
    )


def front(page: str) -> str:
    """The methods that all three data sets have, and the untrained features, from the first table of each suite."""
    columns = {place: _column(page, *place) for place in FRONT}
    everywhere = [name for name in columns["cub-features", "map@r"] if all(name in found for found in columns.values())]
    lines = [f"| % on classes never seen | {' | '.join(FRONT.values())} |", f"|---|{'---:|' * len(FRONT)}"]
    for name in ["untrained", *everywhere]:
        lines.append(f"| {name} | {' | '.join(found.get(name, '') for found in columns.values())} |")
    return "\n".join(lines)


def _column(page: str, suite: str, metric: str) -> dict[str, str]:
    part = re.search(rf"<!-- {suite} -->(.*?)<!-- /{suite} -->", page, flags=re.DOTALL)
    assert part is not None, f"{PAGE.name} has no part {suite}"
    rows = re.findall(r"^\|(.*)\|$", part[1].split("\n\nBest", 1)[0], flags=re.MULTILINE)
    cells = [[cell.strip() for cell in row.split("|")] for row in rows]
    place = cells[0].index(f"{metric}, %")
    return {row[0]: row[place] for row in cells[2:]}


def main(folders: list[str]) -> None:
    for folder in folders:
        bench = Bench.open(folder)
        fill(PAGE, bench.suite.name, shown(bench))
    fill(ROOT / "README.md", "results", front(PAGE.read_text()))


if __name__ == "__main__":
    main(sys.argv[1:])
