"""`Run`: the folder of a training, with its configuration, log, scores and model."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from kinfold.data import Dataset, Pipeline, convert, to_dataset
from kinfold.embedding.compute import compute_embeddings
from kinfold.embedding.search import SearchIndex, SearchResult
from kinfold.files.paths import describe_missing
from kinfold.metrics import Distance
from kinfold.models import Embedder
from kinfold.models.backbone import Backbone
from kinfold.models.module_backbone import wrap_module
from kinfold.training import display
from kinfold.training.components import build_pipeline
from kinfold.training.config.parsing import configure
from kinfold.training.config.settings import RunConfig
from kinfold.training.initial_model import create_architecture, create_initial_model, fit_initial_model
from kinfold.training.kept_results import compute_features, embed_untrained
from kinfold.training.run_folder import RunFolder
from kinfold.training.splits import assign_splits, load_dataset, split_classes

Progress = Callable[[str, float], None]


@dataclass(frozen=True, eq=False, repr=False)
class Run:
    """A training that was begun or finished; `kinfold.train` returns it, and `Run.open` reads it from its folder.

    Args:
        run_folder: The files of the run.
        config: Its configuration.
        dataset: The dataset, where the configuration does not name the one that it was trained on.
        backbone: The backbone, where it was passed in Python.
    """

    run_folder: RunFolder
    config: RunConfig
    dataset: Dataset | None = None
    backbone: Backbone | None = None

    @staticmethod
    def open(folder: Path | str, dataset: Any = None, backbone: nn.Module | None = None) -> "Run":
        """Open the folder of a run.

        Args:
            folder: The folder.
            dataset: The data that the run was trained on, where its configuration does not name it; whatever
                `kinfold.data.convert` takes.
            backbone: The module that was passed to `kinfold.train` as its backbone.

        Raises:
            ValueError: It is not the folder of a run, or its configuration cannot be read.
        """
        run_folder = RunFolder(folder)
        if not run_folder.begun:
            raise ValueError(_explain_no_run(run_folder))
        try:
            config = configure(run_folder.read_configuration())
        except ValueError as error:  # a plugin that was not loaded, or a file that was edited
            raise ValueError(f"the run {run_folder.path} cannot be opened: {error}") from None
        passed = None if backbone is None else wrap_module(backbone)
        return Run(run_folder, config, None if dataset is None else convert(dataset), passed)

    def __repr__(self) -> str:
        return display.describe_run(self)

    def _repr_html_(self) -> str:
        return display.render_html(self)

    @property
    def folder(self) -> Path:
        """The folder of the run."""
        return self.run_folder.path

    @property
    def finished(self) -> bool:
        """Whether the run is finished and has scores."""
        return self.run_folder.finished

    @property
    def scores(self) -> dict[str, Any]:
        """What scores.json says; a ValueError while the run is not finished."""
        if not self.finished:
            raise ValueError(f"{self.folder} is not finished; continue it with kinfold train --resume {self.folder}")
        return self.run_folder.read_scores()

    @property
    def events(self) -> list[dict[str, Any]]:
        """The log: losses and evaluations in their order."""
        return self.run_folder.read_events()

    @property
    def distance(self) -> Distance:
        """How embeddings of the run are compared."""
        distance: Any = self.config.evaluation.distance
        return "cosine" if distance == "auto" else distance

    @property
    def background(self) -> str:
        """The color under transparent pixels."""
        return self.config.data.background

    @cached_property
    def pipeline(self) -> Pipeline | None:
        """How images are prepared for the network; None for features."""
        return build_pipeline(self.config.data, create_architecture(self.config, self.backbone))

    def table(self) -> str:
        """Return the scores as a table of text: for each metric the score of each split, its start and its gain.

        The start is the score before the first step on the same classes; the gain is the score minus the start.

        Raises:
            ValueError: The run is not finished.
        """
        return display.render_text(self)

    def plot(self) -> Any:
        """Draw the loss and the evaluations over the steps.

        Returns:
            A matplotlib figure.

        Raises:
            ImportError: matplotlib is not installed.
            ValueError: Nothing was logged yet.
        """
        return display.plot_curves(self)

    def model(self) -> Embedder:
        """Build the network with its selected weights, or the best or newest ones of an unfinished run.

        Raises:
            ValueError: There are no weights yet, or they do not fit the architecture.
        """
        model = create_architecture(self.config, self.backbone)
        try:
            model.load_state_dict(self._read_weights()["model"])
        except RuntimeError as error:
            version = self.run_folder.read_environment().get("kinfold")
            raise ValueError(
                f"the weights of {self.folder}, written by kinfold {version}, do not fit the architecture that its "
                f"configuration names in this version: {error}"
            ) from None
        return model.eval()

    def start_model(self) -> Embedder:
        """Build the network as it was before its first step, from the configuration and the training items."""
        model, start = create_initial_model(self.config, self.backbone)
        train = self.splits()["train"]
        fit_initial_model(
            model,
            self.config.model,
            lambda: compute_features(model, train, self.pipeline, **self._embedding_options()),
            train.labels,
            (start or {}).get("parts", ()),
        )
        return model.eval()

    @property
    def weights_step(self) -> int:
        """The step of the weights that `model` loads."""
        state = self._read_weights()
        return int(state["step"] if "step" in state else state["done"])

    def weight_files(self) -> list[Path]:
        """Return the file that `model` reads its weights from: selected, best or newest; empty before there is one."""
        for path in (self.run_folder.model, self.run_folder.best):
            if path.is_file():
                return [path]
        return sorted(self.run_folder.checkpoints.glob("*.safetensors"))[-1:]

    def splits(self) -> dict[str, Dataset]:
        """Return the datasets of the run by split: train, and validation and test where there are such classes."""
        config = self.config.data
        dataset = load_dataset(config) if self.dataset is None else assign_splits(self.dataset, config)
        return {name: split for name, split in vars(split_classes(dataset, config)).items() if split is not None}

    def list_visible_splits(self) -> dict[str, Dataset]:
        """Return the splits that may be looked at: without the held-out test classes until the run is finished."""
        return {name: split for name, split in self.splits().items() if name != "test" or self.finished}

    def data(self, split: str = "test") -> Dataset:
        """Return the items of one split.

        Raises:
            ValueError: There is no such split, or it is held out until the run is finished.
        """
        return select_split(self.splits(), split, self.folder, self.finished)

    def embed(self, things: Any, progress: Progress | None = None) -> Tensor:
        """Embed a dataset, an image, a row of features, or several of these.

        Args:
            things: A `kinfold.data.Dataset`, the path of an image, a Pillow image, an array, a list of these or a torch
                dataset, a data frame or a table; see `kinfold.data.to_dataset`. Images pass the transform and the
                background of the run.
            progress: Called with a stage and the share that is finished.

        Returns:
            (N, dim) in the order of `things`; N is 1 for a single image or row.

        Raises:
            ValueError: The run embeds items of another kind or width.
        """
        dataset = to_dataset(things, features=self.pipeline is None, taker=f"the run {self.folder}")
        model = self.model()
        if self.pipeline is None and len(dataset) and len(dataset.items[0]) != model.backbone.width:
            raise ValueError(
                f"the run {self.folder} takes features of shape (B, {model.backbone.width}); each item of "
                f"{dataset.name} has {len(dataset.items[0])}"
            )
        return self._embed(model, dataset, progress=progress)

    def search(
        self, query: Any, k: int = 10, gallery: str | Path | None = None, split: str | None = None
    ) -> SearchResult:
        """Find the nearest items of a query in the data of the run, or in other data.

        For many queries open a `kinfold.embedding.SearchIndex` once, and for items that are added and removed a
        `kinfold.Gallery`.

        Args:
            query: The path of an image, a Pillow image, an array, or the position of an item (17 or "#17").
            k: How many neighbors.
            gallery: A folder of images, a table, a feature file or the name of a dataset; None is the data of the run.
            split: "train", "validation", "test" or "all". None is the test split of the run where it may be looked at.

        Returns:
            The neighbors, with a table and a plot.

        Raises:
            ValueError: There is no such gallery, split or query, or it does not fit the run.
        """
        return SearchIndex.open(self, gallery, split).search(query, k)

    def embed_start(self, dataset: Dataset) -> Tensor:
        """Embed a dataset with the weights before the first step, (N, dim) in the order of the dataset."""
        return embed_untrained(self.start_model(), dataset, self.pipeline, **self._embedding_options())

    def _embed(self, model: Embedder, dataset: Dataset, **options: Any) -> Tensor:
        return compute_embeddings(model, dataset, self.pipeline, **self._embedding_options(), **options)

    def _embedding_options(self) -> dict[str, Any]:
        return {"batch_size": self.config.evaluation.batch_size, "precision": self.config.training.precision}

    def _read_weights(self) -> dict[str, Any]:
        for path in (self.run_folder.model, self.run_folder.best):
            if path.is_file():
                return self.run_folder.read_weights(path)
        state = self.run_folder.read_last_state()
        if state is None:
            raise ValueError(f"{self.folder} has no weights yet; continue it with kinfold train --resume {self.folder}")
        return state


def select_split(splits: Mapping[str, Dataset], split: str, folder: Path, finished: bool) -> Dataset:
    """Return one split of a run.

    Raises:
        ValueError: There is no such split, or it is held out until the run is finished.
    """
    if split not in splits:
        raise ValueError(f"the data of {folder} has no split {split!r}; it has {', '.join(splits)}")
    if split == "test" and not finished:
        raise ValueError(
            f"{folder} is not finished, and its test classes are held out until it is: finish it with kinfold train "
            f"--resume {folder}, or use --split validation"
        )
    return splits[split]


def _explain_no_run(run_folder: RunFolder) -> str:
    """Say what there is in place of the folder of a run, and where runs are."""
    path, name = run_folder.path, run_folder.configuration.name
    if path.is_file():
        return f"{path} is not the folder of a run, but a file"
    if not path.is_dir():
        return f"{path} is not the folder of a run: {describe_missing(path, 'folder')}"
    inside = next((each.parent for each in sorted(path.glob(f"*/{name}"))), None)
    inside = inside or next((each.parent for each in sorted(path.glob(f"runs/**/{name}"))), None)
    hint = (
        f"; name one of the runs inside, such as {inside}" if inside else "; kinfold train and kinfold adapt write one"
    )
    return f"{path} is not the folder of a run: it has no {name}{hint}"
