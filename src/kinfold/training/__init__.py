"""The loop: step, precision, resume, ranks, logging; from a recipe to a run folder with a model and its scores."""

from kinfold.training.configuration import Configuration
from kinfold.training.loop import Event, Trainer
from kinfold.training.objective import Objective
from kinfold.training.parsing import configure
from kinfold.training.run import Run, train
from kinfold.training.signals import Stopped
from kinfold.training.step import Step

__all__ = ["Configuration", "Event", "Objective", "Run", "Step", "Stopped", "Trainer", "configure", "train"]
