"""Workers that train the runs of a bench: processes of this machine, or the nodes of a Ray cluster."""

from kinfold.experiments.workers.processes import Processes, WorkerPool
from kinfold.experiments.workers.tasks import Task, TaskResult, run_task

__all__ = ["Processes", "Task", "TaskResult", "WorkerPool", "run_task"]
