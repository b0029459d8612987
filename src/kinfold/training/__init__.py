"""The loop: step, precision, resume, ranks, logging; from a recipe to a run folder with a model and its scores."""

from kinfold.training.config.parsing import configure
from kinfold.training.config.settings import RunConfig
from kinfold.training.loop import Event, Trainer
from kinfold.training.objective import Objective
from kinfold.training.run import Run, train
from kinfold.training.signals import Stopped
from kinfold.training.step import Step

__all__ = ["Event", "Objective", "Run", "RunConfig", "Step", "Stopped", "Trainer", "configure", "train"]
