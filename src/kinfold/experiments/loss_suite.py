"""A suite without a TOML file: some losses on one feature file, beside what needs no training."""

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kinfold import recipes, registry
from kinfold.data import load
from kinfold.experiments.reference_rows import REFERENCE_ROWS
from kinfold.experiments.suite import Suite
from kinfold.training import train
from kinfold.training.config.parsing import merge_tables, read_tables

MAX_STEPS, MIN_STEPS = 600, 20  # of a run; the recipe has 600
_TRIAL_STEPS = (10, 40)
UNTRAINED_ROWS = ("as given", *REFERENCE_ROWS)


def make_loss_suite(
    root: Path | str, losses: Sequence[str], minutes: float | None = None, seeds: int = 3, jobs: int = 1
) -> Suite:
    """Make a suite of the recipe `features` with several losses.

    The input space, half-whitening and whitening within classes are rows of their own: a loss should beat them.

    Args:
        root: A feature file with labels.
        losses: Registered losses.
        minutes: Time for all runs. A short trial turns it into a number of steps, which the suite holds.
        seeds: Repeats.
        jobs: Runs at a time.

    Returns:
        The suite.

    Raises:
        ValueError: A loss is unknown or named twice, or the file cannot be used.
    """
    root = Path(root).resolve()
    for loss in losses:
        registry.resolve("losses", loss)  # raises with the nearest name
    if minutes is not None and not minutes > 0:
        raise ValueError(f"minutes must be greater than 0, got {minutes}")
    dataset = load("features", root)
    width = len(dataset.items[0])
    has_test = bool((dataset.split == "test").any())
    data = {"name": root.stem, "data": {"name": "features", "root": str(root)}}
    base: dict[str, Any] = {"recipe": "features"}
    untrained: dict[str, Any] = {"training": {"steps": 0}}
    methods = [
        {"name": UNTRAINED_ROWS[0], "model": {"head": "identity", "dim": width, "init": "random"}, **untrained},
        {"name": UNTRAINED_ROWS[1], "model": {"init": "half-whiten"}, **untrained},
        {"name": UNTRAINED_ROWS[2], "model": {"init": "within-whiten", "dim": width}, **untrained},
        *({"name": loss, "loss": {"name": loss}} for loss in losses),
    ]
    if minutes is not None:
        steps = _choose_steps(root, losses[0], 60 * minutes * jobs / (seeds * len(losses)))
        base["training"] = {"steps": steps}
        base["evaluation"] = {"every": max(1, steps // 12)}
    return Suite(
        name=f"{root.stem}-losses",
        method=methods,
        data=[data],
        base=base,
        seeds=[*range(seeds)],
        protocol="given" if has_test else "classic",
    )


def _choose_steps(root: Path, loss: str, seconds: float) -> int:
    """Return the steps of a run that takes these seconds, by two short runs."""
    tables = merge_tables(
        read_tables(recipes.find_recipe("features")),
        {"data": {"root": str(root), "test": "withheld"}, "loss": {"name": loss}},
    )
    taken = []
    with tempfile.TemporaryDirectory() as folder:
        for number, steps in enumerate((_TRIAL_STEPS[0], *_TRIAL_STEPS)):  # the first one imports and allocates
            start = time.perf_counter()
            changes = [f"training.steps={steps}", f"evaluation.every={steps}"]
            train(tables, Path(folder) / str(number), changes=changes)
            taken.append(time.perf_counter() - start)
    step = max(1e-4, (taken[2] - taken[1]) / (_TRIAL_STEPS[1] - _TRIAL_STEPS[0]))
    overhead = max(0.0, taken[1] - _TRIAL_STEPS[0] * step)
    return int(min(MAX_STEPS, max(MIN_STEPS, (seconds - overhead) / step)))
