"""Diagnostics of the training classes against the score on test classes."""

import numpy as np
import pytest

from kinfold.experiments.repeat import Repeat
from tests.report.runs import find_remarks


def test_diagnostics_are_those_that_the_runs_measured(bench, of_bench):
    charts = {chart["name"].partition(" ")[0]: chart for chart in of_bench["charts"]["diagnostics"]}
    assert all(chart["title"] == f"recall@1 against {name}" for name, chart in charts.items())
    assert {"rho@1", "rho@2", "density", "uniformity", "alignment"} <= set(charts)
    each = [Repeat.open(bench / "runs" / "tiny" / "triplet" / f"seed-{seed}").scores for seed in (0, 1, 2)]
    (series,) = (series for series in charts["rho@1"]["series"] if series["name"] == "triplet")
    assert series["x"] == pytest.approx([np.mean([one["train_space"]["rho@1"] for one in each])], rel=1e-4)
    assert series["y"] == pytest.approx([np.mean([one["separated"]["recall@1"] for one in each])], rel=1e-4)
    assert find_remarks(of_bench, "of the first run of each method only")
