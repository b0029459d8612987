"""Exact metrics of kinfold as a task of MTEB, for any of its models."""

from collections.abc import Sequence
from typing import Any

import torch

from kinfold.metrics import evaluate
from kinfold.optional import import_optional
from kinfold.pairs import Labels

try:
    from datasets import Dataset, DatasetDict
    from mteb._create_dataloaders import create_dataloader
    from mteb.abstasks import AbsTask
    from mteb.abstasks.task_metadata import TaskMetadata
except ImportError:  # the constructor says what is missing
    AbsTask = object

_TEXT, _LABEL = "text", "label"


class ExactMetricsTask(AbsTask):
    """A task of MTEB that scores embeddings by the exact metrics of `kinfold.metrics.evaluate`.

    Every text is a query against all others; those of its class are relevant. `mteb.evaluate(model, [task])` runs it
    with any model of MTEB, and stores the result with those of other tasks.

    Args:
        texts: The texts.
        labels: Class of each text, integers or strings.
        metrics: Names of metrics; by default recall@1, 2, 4, 8, R-precision and MAP@R. The last is the main score.
        distance: "cosine", "dot", "euclidean" or "hyperbolic".
        name: Name of the task in the results.
        language: Language and script of the texts.
        seed: Seed of MTEB for the task; the metrics draw nothing.

    Raises:
        ImportError: mteb is not installed.
        ValueError: Lengths differ.
    """

    def __init__(
        self,
        texts: Sequence[str],
        labels: Labels,
        metrics: Sequence[str] | None = None,
        distance: str = "cosine",
        name: str = "ExactMetrics",
        language: str = "eng-Latn",
        seed: int = 42,
    ) -> None:
        if AbsTask is object:
            import_optional("mteb", "mteb", "mteb", "ExactMetricsTask")
        if len(texts) != len(labels):
            raise ValueError(f"{len(labels)} labels for {len(texts)} texts: one label for each is needed")
        self.metrics = ["recall@1", "recall@2", "recall@4", "recall@8", "r-precision", "map@r"]
        if metrics is not None:
            self.metrics = [*metrics]
        self.distance = distance
        self.texts, self.labels = [*texts], [str(label) for label in _as_list(labels)]
        self.metadata = TaskMetadata(
            dataset={"path": f"local/{name}", "revision": "local"},
            name=name,
            description="Exact retrieval metrics of labeled texts, computed by kinfold.",
            type="Clustering",
            category="t2t",
            modalities=["text"],
            eval_splits=["test"],
            eval_langs=[language],
            main_score=self.metrics[-1],
        )
        super().__init__(seed=seed)

    @classmethod
    def from_task(
        cls, task: Any, split: str = "test", metrics: Sequence[str] | None = None, distance: str = "cosine"
    ) -> "ExactMetricsTask":
        """Make the task from a single-label classification task of MTEB, whose texts and labels it takes.

        Args:
            task: A classification task.
            split: Split of its data.
            metrics: Names of metrics; see the class.
            distance: "cosine", "dot", "euclidean" or "hyperbolic".

        Raises:
            ValueError: The task has several subsets, or no columns of texts and labels.
        """
        task.load_data()
        data = task.dataset
        if split not in data and len(data) == 1:
            (data,) = data.values()
        if split not in data:
            raise ValueError(f"{task.metadata.name} has no split {split!r}; it has {', '.join(map(str, data))}")
        columns = data[split].column_names
        text, label = getattr(task, "input_column_name", _TEXT), getattr(task, "label_column_name", _LABEL)
        if text not in columns or label not in columns:
            raise ValueError(f"{task.metadata.name} has no columns {text!r} and {label!r}; it has {', '.join(columns)}")
        labels = [str(entry) for entry in data[split][label]]
        return cls([*data[split][text]], labels, metrics, distance, name=f"{task.metadata.name}ExactMetrics")

    def load_data(self, num_proc: int | None = None, **options: Any) -> None:
        """Make the dataset of MTEB from the texts; nothing is downloaded."""
        data = Dataset.from_dict({_TEXT: self.texts, _LABEL: self.labels})
        self.dataset = {"default": DatasetDict({"test": data})}
        self.data_loaded = True

    def unload_data(self) -> None:
        """Forget the dataset of MTEB; the metadata, which belong to this object, stay."""
        self.data_loaded = False

    def _evaluate_subset(
        self,
        model: Any,
        data_split: Any,
        *,
        hf_split: str,
        hf_subset: str,
        encode_kwargs: Any,
        **options: Any,
    ) -> dict[str, float]:
        loader = create_dataloader(
            data_split, task_metadata=self.metadata, input_column=_TEXT, batch_size=encode_kwargs.get("batch_size", 32)
        )
        embeddings = model.encode(
            loader, task_metadata=self.metadata, hf_split=hf_split, hf_subset=hf_subset, **encode_kwargs
        )
        rows = torch.as_tensor(embeddings).float().cpu()
        scores: dict[str, float] = evaluate(
            rows,
            data_split[_LABEL][:],
            metrics=self.metrics,
            distance=self.distance,  # type: ignore[arg-type]
        )
        return {key: float(value) for key, value in scores.items()}

    def _calculate_descriptive_statistics_from_split(
        self, split: str, *, hf_subset: str | None = None, compute_overall: bool = False, num_proc: int | None = None
    ) -> dict[str, int]:
        return {"num_samples": len(self.texts), "unique_labels": len({*self.labels})}


def _as_list(labels: Labels) -> list[Any]:
    return labels.tolist() if hasattr(labels, "tolist") else [*labels]
