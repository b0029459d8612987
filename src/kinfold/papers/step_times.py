"""Seconds of a training step: rows with the same axis value take turns, and times are kept in a file."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import torch

from kinfold.data import Batch, Dataset
from kinfold.devices import synchronize
from kinfold.distributed import World
from kinfold.files.documents import read_result, write_result
from kinfold.training.builder import RunBuilder
from kinfold.training.config.parsing import configure
from kinfold.training.config.settings import RunConfig
from kinfold.training.loop.trainer import Trainer

TIMED_STEPS, WARMUP_STEPS = 5, 1  # of every row
FILE = "times.json"
SHAPE = {"threads": int, "rows": {str: {"seconds": float, "settings": {str: object}}}}


@dataclass(frozen=True)
class StepTimer:
    """Times the steps of rows, group by group, and keeps the times.

    A group that the file already has with the same settings and threads is not timed again, so that a stopped command
    continues, and a repeated one shows the same times.

    Args:
        folder: Where the file is; created if needed.
        dataset: The data of all rows.
        threads: Number of threads.
    """

    folder: Path
    dataset: Dataset
    threads: int

    def measure(self, groups: Sequence[Mapping[str, Mapping[str, Any]]]) -> dict[str, float]:
        """Return the seconds of the shortest step of every row.

        Args:
            groups: Row -> its settings. Rows of a group take turns, so that other load affects all of them equally.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        kept = self._read()
        for group in groups:
            if all(name in kept and kept[name]["settings"] == settings for name, settings in group.items()):
                continue
            configs = [configure(settings) for settings in group.values()]
            for (name, settings), seconds in zip(group.items(), self._time(configs), strict=True):
                kept[name] = {"seconds": seconds, "settings": dict(settings)}
            write_result(self.folder / FILE, {"threads": self.threads, "rows": kept}, self.folder)
        return {name: kept[name]["seconds"] for group in groups for name in group}

    def _read(self) -> dict[str, dict[str, Any]]:
        if not (self.folder / FILE).is_file():
            return {}
        document = read_result(self.folder / FILE, SHAPE, self.folder)
        return document["rows"] if document["threads"] == self.threads else {}

    def _time(self, configs: list[RunConfig]) -> list[float]:
        threads_before = torch.get_num_threads()
        torch.set_num_threads(self.threads)
        try:
            return _measure_seconds(configs, self.dataset)
        finally:
            torch.set_num_threads(threads_before)


def _measure_seconds(configs: list[RunConfig], dataset: Dataset) -> list[float]:
    """The shortest step of every configuration."""
    steps = TIMED_STEPS + WARMUP_STEPS
    with torch.random.fork_rng(devices=[]):
        trainers = [RunBuilder(config, dataset, World.current()).build_trainer(None, []) for config in configs]
        batches = [cycle(_read_batches(trainer, steps)) for trainer in trainers]
        durations: list[list[float]] = [[] for _ in trainers]
        for number in range(steps):
            for trainer, trainer_batches, seconds in zip(trainers, batches, durations, strict=True):
                start = time.perf_counter()
                _take_step(trainer, next(trainer_batches), number)
                seconds.append(time.perf_counter() - start)
    return [min(seconds[WARMUP_STEPS:]) for seconds in durations]


def _read_batches(trainer: Trainer, count: int) -> list[Batch]:
    if not trainer.sampler.ready:
        assert trainer.embed is not None
        embeddings = trainer.embed(trainer.model)
        trainer.sampler.update(torch.arange(embeddings.shape[0]), embeddings)
    trainer.batches.set_epoch(0)
    trainer.model.train()
    return [batch for batch, _ in zip(trainer.batches, range(count), strict=False)]


def _take_step(trainer: Trainer, batch: Batch, number: int) -> None:
    trainer.optimizer.zero_grad()
    trainer.step(batch, number)
    trainer.optimizer.step()
    synchronize(trainer.step.device)
