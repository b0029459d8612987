"""From a recipe to a finished run, and a run that was made before."""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kinfold.data import Dataset, Pipeline
from kinfold.metrics.comparison import Distance
from kinfold.models import Embedder
from kinfold.training import parts
from kinfold.training.configuration import Configuration
from kinfold.training.embedding import embedded
from kinfold.training.environment import ProcessGroup
from kinfold.training.folder import RunFolder
from kinfold.training.loop import Callback
from kinfold.training.parsing import configure, read, tables, to_toml
from kinfold.training.work import Work

Recipe = Configuration | Mapping[str, Any] | Path | str


def train(
    recipe: Recipe | None = None,
    folder: Path | str | None = None,
    *,
    changes: Sequence[str] = (),
    resume: bool = False,
    dataset: Dataset | None = None,
    callbacks: Sequence[Callback] = (),
) -> "Run":
    """Train, evaluate and save; the run with its model and scores is returned.

    recipe: a TOML file, tables as a dictionary, or a Configuration. changes: such as "loss.k=160". folder: a new one
    for the run. resume: go on with the run in `folder`, with its own configuration; one that is finished is returned as
    it is. dataset: learn from this instead of what the configuration names.
    """
    if folder is None:
        raise ValueError("give the folder of the run: kinfold.train(recipe, 'runs/first')")
    place = RunFolder(folder)
    if resume:
        if recipe is not None or changes:
            raise ValueError("a run that is resumed keeps its own configuration; give no recipe and no changes")
        given = Run.open(folder).configuration
    else:
        given = _configuration({} if recipe is None else recipe, changes)
    with ProcessGroup() as ranks, ExitStack() as held:
        if resume and place.finished:
            return Run(place, given, dataset)
        if resume:
            # another number of threads would round differently
            about = json.loads(place.environment.read_text())
            torch.set_num_threads(about["threads"])
        work = Work(given, dataset, ranks)
        if resume:
            work.check_data(place, about.get("data"))
        trainer = work.trainer(place, callbacks)
        # nothing is written before all of it could be put together
        if ranks.first:
            if not resume:
                place.begin(to_toml(tables(work.given)), work.about())
            held.enter_context(place.held())
        ranks.wait()
        state = place.last() if resume else None
        if resume and ranks.first:
            place.cut_log(0 if state is None else state["log"])
        if state is not None:
            trainer.load_state_dict(state)
        ranks.wait()
        trainer.fit()
        work.finish(trainer, place)
        return Run(place, work.given, dataset)


@dataclass(frozen=True, eq=False)
class Run:
    """A folder that a training wrote: its configuration, log, scores and model."""

    place: RunFolder
    configuration: Configuration
    dataset: Dataset | None = None

    @staticmethod
    def open(folder: Path | str, dataset: Dataset | None = None) -> "Run":
        """A run that was made before; `dataset` where it was trained on one that no configuration names."""
        place = RunFolder(folder)
        if not place.begun:
            raise ValueError(f"{place.path} is not the folder of a run: it has no {place.configuration.name}")
        try:
            return Run(place, configure(read(place.configuration)), dataset)
        except ValueError as wrong:  # a plugin that was not loaded, or a file that was edited
            raise ValueError(f"the run {place.path} cannot be opened: {wrong}") from None

    @property
    def folder(self) -> Path:
        return self.place.path

    @property
    def finished(self) -> bool:
        return self.place.finished

    @property
    def scores(self) -> dict[str, Any]:
        """What scores.json says; ValueError while the run is not finished."""
        if not self.finished:
            raise ValueError(f"{self.folder} is not finished; continue it with kinfold train --resume {self.folder}")
        found: dict[str, Any] = json.loads(self.place.scores.read_text())
        return found

    @property
    def events(self) -> list[dict[str, Any]]:
        """The log: losses and evaluations in their order."""
        return self.place.events()

    @property
    def distance(self) -> Distance:
        found: Any = self.configuration.evaluation.distance
        return "cosine" if found == "auto" else found

    @cached_property
    def pipeline(self) -> Pipeline | None:
        return parts.image_pipeline(self.configuration.data, parts.model(self._without_weights()))

    def model(self) -> Embedder:
        """The selected network, for evaluation: at the end the selected one, before that the best or the newest."""
        model = parts.model(self._without_weights())
        if self.configuration.training.precision == "float64":
            model.double()
        try:
            model.load_state_dict(self._weights()["model"])
        except RuntimeError as wrong:
            made = json.loads(self.place.environment.read_text()).get("kinfold")
            raise ValueError(
                f"the weights of {self.folder}, made by kinfold {made}, do not fit the architecture that its "
                f"configuration names in this version: {wrong}"
            ) from None
        return model.eval()

    @property
    def weights_step(self) -> int:
        """The step at which the network was what `model` gives."""
        found = self._weights()
        return int(found["step"] if "step" in found else found["done"])

    def weight_files(self) -> list[Path]:
        """Where the selected weights lie; ValueError before there are any."""
        path = self.place.model if self.finished else self.place.best
        if not path.is_file():
            raise ValueError(
                f"{self.folder} has no selected weights yet; finish it with kinfold train --resume {self.folder}"
            )
        return [path]

    def splits(self) -> dict[str, Dataset]:
        """Train, and validation and test where there are such classes, as the run saw them."""
        settings = self.configuration.data
        data = parts.dataset(settings) if self.dataset is None else parts.assigned(self.dataset, settings)
        found = parts.split(data, settings)
        return {name: part for name, part in vars(found).items() if part is not None}

    def visible(self) -> dict[str, Dataset]:
        """The splits that may be looked at: test classes stay sealed until the run is finished."""
        return {name: part for name, part in self.splits().items() if name != "test" or self.finished}

    def data(self, split: str = "test") -> Dataset:
        """The items of one split, as the run saw them; ValueError for test classes that are still sealed."""
        return one_split(self.splits(), split, self.folder, self.finished)

    def embed(self, dataset: Dataset, progress: Callable[[str, float], None] | None = None) -> Tensor:
        """(N, dim) in the order of the data set."""
        size = self.configuration.evaluation.batch_size
        precision = self.configuration.training.precision
        model = self.model()
        return embedded(model, dataset, self.pipeline, batch_size=size, precision=precision, progress=progress)

    def _weights(self) -> dict[str, Any]:
        for path in (self.place.model, self.place.best):
            if path.is_file():
                return self.place.weights(path)
        state = self.place.last()
        if state is None:
            raise ValueError(
                f"{self.folder} holds no weights yet; continue it with kinfold train --resume {self.folder}"
            )
        return state

    def _without_weights(self) -> Configuration:
        """The architecture alone: weights come from the run, not from where the backbone's once lay."""
        return replace(self.configuration, model=replace(self.configuration.model, weights=None))


def one_split(present: Mapping[str, Dataset], split: str, folder: Path, finished: bool) -> Dataset:
    """One of the splits that there are; ValueError with their names where it is none of them, or is still sealed."""
    if split not in present:
        raise ValueError(f"the data of {folder} has no split {split!r}; it has {', '.join(present)}")
    if split == "test" and not finished:
        raise ValueError(
            f"{folder} is not finished, and its test classes stay sealed until it is: finish it with kinfold train "
            f"--resume {folder}, or look at --split validation"
        )
    return present[split]


def _configuration(recipe: Recipe, changes: Sequence[str]) -> Configuration:
    if isinstance(recipe, Configuration):
        return configure(tables(recipe), changes) if changes else recipe
    return configure(recipe if isinstance(recipe, Mapping) else read(recipe), changes)
