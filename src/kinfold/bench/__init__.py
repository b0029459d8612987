"""Fair comparisons that anyone can rerun: methods x data x folds x seeds, every cell a run folder.

suite (what is compared) -> courses (searches, then repeats) -> workers (processes, or a Ray cluster) -> records, and
when every decision is made the test classes -> results.
"""

from kinfold.bench.processes import Processes
from kinfold.bench.results import Bench
from kinfold.bench.run import Interrupted, State, run
from kinfold.bench.suite import Suite, read_suite

__all__ = ["Bench", "Interrupted", "Processes", "State", "Suite", "read_suite", "run"]
