"""Compare methods in a way that others can repeat: methods x data sets x folds x seeds, with paired tests.

A bench is a folder with all runs of one suite. Data flow, in the order of the modules:

    suite           what is compared, read from a TOML file
    schedule        the runs of one method on one data set: first its search, then its repeats
      search        hyper-parameter search with Optuna
    runner          `run_bench`: passes runs to workers and records how they ended; measures the test classes last
      workers       processes of this machine, or a Ray cluster
      bench_folder  the files of a bench: suite, runs, records, results
      repeat        the folds of one repeat, and their scores on the held-out test classes
    bench           `Bench`: an opened bench with its results
      statistics    intervals over repeats, paired t-tests, Holm's correction
      tables        results as text, Markdown or LaTeX
"""

from kinfold.experiments.bench import Bench
from kinfold.experiments.repeat import Repeat, open_run
from kinfold.experiments.runner import BenchState, Interrupted, run_bench
from kinfold.experiments.statistics import (
    Interval,
    MethodComparison,
    MethodPair,
    PairedTest,
    adjust_holm,
    compare_methods,
    compute_interval,
    paired_test,
)
from kinfold.experiments.suite import Suite, read_suite
from kinfold.experiments.workers.processes import Processes

__all__ = [
    "Bench",
    "BenchState",
    "Interrupted",
    "Interval",
    "MethodComparison",
    "MethodPair",
    "PairedTest",
    "Processes",
    "Repeat",
    "Suite",
    "adjust_holm",
    "compare_methods",
    "compute_interval",
    "open_run",
    "paired_test",
    "read_suite",
    "run_bench",
]
