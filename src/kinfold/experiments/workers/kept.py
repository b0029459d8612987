"""Workers that several benches use one after the other, so that their processes start once."""

from types import TracebackType

from kinfold.experiments.workers.processes import WorkerPool
from kinfold.experiments.workers.tasks import Progress, Task, TaskResult


class KeptWorkers:
    """Workers that stay when a bench closes them; they end with the `with` block.

    A process that starts has to import torch, which takes longer than a short run. Between two benches the processes
    wait for tasks.

    Args:
        pool: The workers.

    Examples:
        `with KeptWorkers(Processes(1, 1, Path("log.txt"))) as workers: run_bench(suite, folder, lambda _: workers)`
    """

    def __init__(self, pool: WorkerPool) -> None:
        self._pool = pool

    def __enter__(self) -> "KeptWorkers":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._pool.close()

    @property
    def free(self) -> int:
        """How many more tasks can start now."""
        return self._pool.free

    def submit(self, task: Task) -> None:
        """Start a task."""
        self._pool.submit(task)

    def wait(self, seconds: float, progress: Progress) -> list[TaskResult]:
        """Wait at most this long for results; return as soon as there is one."""
        return self._pool.wait(seconds, progress)

    def stop(self) -> None:
        """Ask all running tasks to save and stop; `wait` returns their results."""
        self._pool.stop()

    def close(self) -> None:
        """Keep the workers for the next bench."""
