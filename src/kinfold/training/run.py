"""From a recipe to a finished run, and a run that was made before."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kinfold.data import Dataset, Pipeline, to_dataset
from kinfold.distributed import ProcessGroup
from kinfold.files.atomic import write_json
from kinfold.metrics import Distance
from kinfold.models import Embedder
from kinfold.training import parts
from kinfold.training.builder import RunBuilder
from kinfold.training.checking import check
from kinfold.training.config.parsing import apply_changes, configure, read_tables, to_tables, to_toml
from kinfold.training.config.settings import RunConfig
from kinfold.training.embedding import compute_embeddings
from kinfold.training.environment import find_differences
from kinfold.training.folder import RunFolder
from kinfold.training.loop import Callback
from kinfold.training.start import create_architecture, create_start, fit_start
from kinfold.training.warm_start import inherit_model

Recipe = RunConfig | Mapping[str, Any] | Path | str


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

    Args:
        recipe: A TOML file, tables as a dictionary, or a Configuration. Tables may name a run as model.weights:
            training starts from its weights, and what [model] leaves open is taken from that run.
        folder: A new one for the run.
        changes: Such as "loss.k=160".
        resume: Go on with the run in `folder`, with its own configuration; one that is finished is returned as it is.
        dataset: Learn from this instead of what the configuration names.
        callbacks: Called with every event.
    """
    if folder is None:
        raise ValueError("give the folder of the run: kinfold.train(recipe, 'runs/first')")
    place = RunFolder(folder)
    if resume:
        if recipe is not None or changes:
            raise ValueError("a run that is resumed keeps its own configuration; give no recipe and no changes")
        given = Run.open(folder).config
    else:
        given = _parse_recipe({} if recipe is None else recipe, changes)
        check(given)
    with ProcessGroup() as ranks, ExitStack() as held:
        if resume and place.finished:
            return Run(place, given, dataset)
        if resume:
            # another number of threads would round differently
            about = place.read_environment()
            torch.set_num_threads(about["threads"])
        work = RunBuilder(given, dataset, ranks, resumed=resume and any(place.checkpoints.glob("*.safetensors")))
        if resume:
            work.check_data(place, about.get("data"))
            work.check_start(place, about)
            new_conditions = find_differences(about, work.describe())
            if new_conditions and ranks.is_first:
                warnings.warn(
                    f"{place.path} goes on under other conditions than it began with ({', '.join(new_conditions)}). "
                    "The batches stay the same, but numbers are rounded in another way and what is drawn on each rank "
                    "(dropout, partners in mixup) differs, so the result will not be bit for bit that of an "
                    "uninterrupted run; environment.json records it",
                    stacklevel=2,
                )
        trainer = work.build_trainer(place, callbacks)
        # nothing is written before all of it could be put together
        if ranks.is_first:
            if not resume:
                place.begin(to_toml(to_tables(work.config)), work.describe())
            held.enter_context(place.lock())
        ranks.barrier()
        state = place.read_last_state() if resume else None
        if resume and ranks.is_first:
            place.cut_log(0 if state is None else state["log"])
        if state is not None:
            trainer.load_state_dict(state)
        if resume and new_conditions and ranks.is_first:
            entry = {"step": trainer.step_number, "changed": new_conditions}
            write_json(place.environment, {**about, "resumed": [*about.get("resumed", []), entry]})
        ranks.barrier()
        trainer.fit()
        work.finish(trainer, place)
        return Run(place, work.config, dataset)


@dataclass(frozen=True, eq=False)
class Run:
    """A folder that a training wrote: its configuration, log, scores and model."""

    run_folder: RunFolder
    config: RunConfig
    dataset: Dataset | None = None

    @staticmethod
    def open(folder: Path | str, dataset: Dataset | None = None) -> "Run":
        """A run that was made before; `dataset` where it was trained on one that no configuration names."""
        place = RunFolder(folder)
        if not place.begun:
            raise ValueError(f"{place.path} is not the folder of a run: it has no {place.configuration.name}")
        try:
            return Run(place, configure(place.read_configuration()), dataset)
        except ValueError as wrong:  # a plugin that was not loaded, or a file that was edited
            raise ValueError(f"the run {place.path} cannot be opened: {wrong}") from None

    @property
    def folder(self) -> Path:
        return self.run_folder.path

    @property
    def finished(self) -> bool:
        return self.run_folder.finished

    @property
    def scores(self) -> dict[str, Any]:
        """What scores.json says; ValueError while the run is not finished."""
        if not self.finished:
            raise ValueError(f"{self.folder} is not finished; continue it with kinfold train --resume {self.folder}")
        return self.run_folder.read_scores()

    @property
    def events(self) -> list[dict[str, Any]]:
        """The log: losses and evaluations in their order."""
        return self.run_folder.events()

    @property
    def distance(self) -> Distance:
        found: Any = self.config.evaluation.distance
        return "cosine" if found == "auto" else found

    @property
    def background(self) -> str:
        """The color that transparent pixels are drawn on."""
        return self.config.data.background

    @cached_property
    def pipeline(self) -> Pipeline | None:
        return parts.build_pipeline(self.config.data, create_architecture(self.config))

    def model(self) -> Embedder:
        """The selected network, for evaluation: at the end the selected one, before that the best or the newest."""
        model = create_architecture(self.config)
        try:
            model.load_state_dict(self._weights()["model"])
        except RuntimeError as wrong:
            made = self.run_folder.read_environment().get("kinfold")
            raise ValueError(
                f"the weights of {self.folder}, made by kinfold {made}, do not fit the architecture that its "
                f"configuration names in this version: {wrong}"
            ) from None
        return model.eval()

    def start_model(self) -> Embedder:
        """The network as it was before its first step, made again from the configuration and the training items."""
        model, taken = create_start(self.config)
        fit_start(
            model,
            self.config.model,
            lambda: self._embed(model, self.splits()["train"], of=model.features),
            (taken or {}).get("parts", ()),
        )
        return model.eval()

    @property
    def weights_step(self) -> int:
        """The step at which the network was what `model` gives."""
        found = self._weights()
        return int(found["step"] if "step" in found else found["done"])

    def weight_files(self) -> list[Path]:
        """Where the selected weights lie; ValueError before there are any."""
        path = self.run_folder.model if self.finished else self.run_folder.best
        if not path.is_file():
            raise ValueError(
                f"{self.folder} has no selected weights yet; finish it with kinfold train --resume {self.folder}"
            )
        return [path]

    def splits(self) -> dict[str, Dataset]:
        """Train, and validation and test where there are such classes, as the run saw them."""
        settings = self.config.data
        data = parts.load_dataset(settings) if self.dataset is None else parts.assign_splits(self.dataset, settings)
        found = parts.split_classes(data, settings)
        return {name: part for name, part in vars(found).items() if part is not None}

    def list_visible_splits(self) -> dict[str, Dataset]:
        """The splits that may be looked at: test classes stay sealed until the run is finished."""
        return {name: part for name, part in self.splits().items() if name != "test" or self.finished}

    def data(self, split: str = "test") -> Dataset:
        """The items of one split, as the run saw them; ValueError for test classes that are still sealed."""
        return one_split(self.splits(), split, self.folder, self.finished)

    def embed(self, things: Any, progress: Callable[[str, float], None] | None = None) -> Tensor:
        """Embed a data set, an image, a row of features, or several of these.

        Args:
            things: A `kinfold.data.Dataset`, the path of an image, a Pillow image, an array, a list of these or a torch
                data set; see `kinfold.data.to_dataset`. Images pass the transform and the background of the run.
            progress: Called with a stage and the share that is finished.

        Returns:
            (N, dim) in the order of `things`; N is 1 for a single image or row.
        """
        dataset = to_dataset(things, features=self.pipeline is None, taker=f"the run {self.folder}")
        model = self.model()
        if self.pipeline is None and len(dataset) and len(dataset.items[0]) != model.backbone.width:
            raise ValueError(
                f"the run {self.folder} takes features of shape (B, {model.backbone.width}); each item of "
                f"{dataset.name} has {len(dataset.items[0])}"
            )
        return self._embed(model, dataset, progress=progress)

    def embed_start(self, dataset: Dataset) -> Tensor:
        """Embed with the weights that the run began with, (N, dim) in the order of the data set."""
        return self._embed(self.start_model(), dataset)

    def _embed(self, model: Embedder, dataset: Dataset, **options: Any) -> Tensor:
        size = self.config.evaluation.batch_size
        precision = self.config.training.precision
        return compute_embeddings(model, dataset, self.pipeline, batch_size=size, precision=precision, **options)

    def _weights(self) -> dict[str, Any]:
        for path in (self.run_folder.model, self.run_folder.best):
            if path.is_file():
                return self.run_folder.weights(path)
        state = self.run_folder.read_last_state()
        if state is None:
            raise ValueError(
                f"{self.folder} holds no weights yet; continue it with kinfold train --resume {self.folder}"
            )
        return state


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


def _parse_recipe(recipe: Recipe, changes: Sequence[str]) -> RunConfig:
    if isinstance(recipe, RunConfig):
        return configure(to_tables(recipe), changes) if changes else recipe
    tables_given = recipe if isinstance(recipe, Mapping) else read_tables(recipe)
    return configure(inherit_model(apply_changes(tables_given, changes)))


def weight_files(run: Run) -> list[Path]:
    """Where the weights lie that `run.model()` takes: selected, best so far or newest; none before there are any."""
    for path in (run.run_folder.model, run.run_folder.best):
        if path.is_file():
            return [path]
    return sorted(run.run_folder.checkpoints.glob("*.safetensors"))[-1:]
