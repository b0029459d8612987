"""Training: from a recipe to a run folder with a model and its scores.

| module | what it holds |
|---|---|
| `config` | the settings of a run, and how recipes are read |
| `launch`, `run` | `train`, and `Run` for a folder that it wrote |
| `loop` | steps, evaluations, checkpoints |
| `builder`, `components`, `initial_model`, `splits`, `evaluation`, `checking` | what `train` builds and computes |
| `run_folder`, `environment` | the files of a run |
"""

from kinfold.training.config.parsing import configure
from kinfold.training.config.settings import RunConfig
from kinfold.training.launch import train
from kinfold.training.loop.objective import Objective
from kinfold.training.loop.signals import Stopped
from kinfold.training.loop.step import Step
from kinfold.training.loop.trainer import Event, Trainer
from kinfold.training.run import Run

__all__ = ["Event", "Objective", "Run", "RunConfig", "Step", "Stopped", "Trainer", "configure", "train"]
