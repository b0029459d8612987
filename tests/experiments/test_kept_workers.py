"""Workers that several benches share."""

from kinfold.experiments.runner import run_bench
from kinfold.experiments.workers.kept import KeptWorkers
from tests.experiments.tiny import Inline, suite


class Counted(Inline):
    closed = 0

    def close(self):
        self.closed += 1


def test_they_run_bench_after_bench_and_end_once(tmp_path):
    pool = Counted()
    with KeptWorkers(pool) as workers:
        for name in ("a", "b"):
            state = run_bench(suite(tmp_path), tmp_path / name, lambda _: workers)
            assert not state.failed
            assert pool.closed == 0
    assert pool.closed == 1
    half = len(pool.task_names) // 2
    assert pool.task_names[:half] == pool.task_names[half:]
