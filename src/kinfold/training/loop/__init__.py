"""The training loop and its parts, without files and configuration tables.

| module | what it holds |
|---|---|
| `trainer` | the loop: steps, evaluations, checkpoints, requests to stop |
| `step` | one gradient of the global batch, in any precision, on any number of processes |
| `objective`, `ensemble_objective` | what a step minimizes |
| `mixup` | manifold mixup |
| `optimizers` | optimizer, parameter groups, learning rate schedule |
| `selection` | which weights a run ends with, and early stopping |
| `signals` | requests to stop from the system or the keyboard |
| `logs` | callbacks that write JSON lines and TensorBoard files |
"""

from kinfold.training.loop.objective import Objective
from kinfold.training.loop.signals import Stopped
from kinfold.training.loop.step import Step, StepOutput
from kinfold.training.loop.trainer import Callback, Event, Trainer

__all__ = ["Callback", "Event", "Objective", "Step", "StepOutput", "Stopped", "Trainer"]
