"""Losses and exact metrics of kinfold for sentence-transformers."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from kinfold import registry
from kinfold.losses import Loss, Mined, Nested
from kinfold.metrics import evaluate
from kinfold.optional import import_optional
from kinfold.pairs import Labels

try:
    from sentence_transformers.base.evaluation import BaseEvaluator
except ImportError:  # the losses need no base class; the evaluator says what is missing
    BaseEvaluator = object


class SentenceLabelLoss(nn.Module):
    """A loss of kinfold for sentence-transformers, for single inputs with a class label.

    As its BatchAllTripletLoss: columns `sentence` and `label`, and a sampler with several items of each class in a
    batch, such as `BatchSamplers.GROUP_BY_LABEL`. Class vectors and other parameters of the loss are trained by its
    trainer, which optimizes parameters of the loss too.

    Args:
        model: A SentenceTransformer.
        loss: A loss of kinfold, with or without a miner, or the registered name of one that needs no options.

    Examples:
        >>> from torch.nn import Identity
        >>> loss = SentenceLabelLoss(Identity(), "multi-similarity")
        >>> loss([{"sentence_embedding": torch.eye(4)}], torch.tensor([0, 0, 1, 1])).shape
        torch.Size([])
    """

    def __init__(self, model: nn.Module, loss: Loss | Mined | Nested | str) -> None:
        super().__init__()
        self.model = model
        self.loss: nn.Module = registry.create("losses", loss) if isinstance(loss, str) else loss

    def forward(self, sentence_features: Sequence[dict[str, Tensor]], labels: Tensor) -> Tensor:
        """Return the loss of a batch.

        Args:
            sentence_features: The tokens of one column.
            labels: Class of each item, (B,).
        """
        features = list(sentence_features)
        if len(features) != 1:
            raise ValueError(
                f"SentenceLabelLoss takes one column of inputs and labels, got {len(features)} columns; use "
                "SentencePairLoss for columns of pairs"
            )
        embeddings = self.model(features[0])["sentence_embedding"]
        return self.compute_loss_from_embeddings([embeddings], labels)

    def compute_loss_from_embeddings(self, embeddings: Sequence[Tensor], labels: Tensor) -> Tensor:
        """Return the loss of embeddings that are computed already, as the wrappers of sentence-transformers call it."""
        value: Tensor = self.loss(embeddings[0], labels.reshape(-1))
        return value


class SentencePairLoss(nn.Module):
    """A loss of kinfold for sentence-transformers, for columns (anchor, positive, negative 1, ...) without labels.

    Row i of the anchors belongs to row i of the positives. All other positives and all negatives are its negatives, as
    in MultipleNegativesRankingLoss, whose value `nt-xent` with `temperature=1/20` has.

    Args:
        model: A SentenceTransformer.
        loss: A loss of kinfold without class vectors, with or without a miner, or its registered name.

    Raises:
        ValueError: The loss compares samples with class vectors.

    Examples:
        >>> from torch.nn import Identity
        >>> loss = SentencePairLoss(Identity(), "nt-xent")
        >>> loss([{"sentence_embedding": torch.eye(4)}] * 2).shape
        torch.Size([])
    """

    def __init__(self, model: nn.Module, loss: Loss | Mined | Nested | str) -> None:
        super().__init__()
        self.model = model
        self.loss: nn.Module = registry.create("losses", loss) if isinstance(loss, str) else loss
        if getattr(self.loss, "proxies", None) is not None:
            raise ValueError("pairs of sentences have no classes: use a loss without num_classes=, such as 'nt-xent'")

    def forward(self, sentence_features: Sequence[dict[str, Tensor]], labels: Tensor | None = None) -> Tensor:
        """Return the loss of a batch.

        Args:
            sentence_features: The tokens of two columns or more: anchors, positives, negatives.
            labels: Not used; sentence-transformers passes them if the data has a column `label`.
        """
        features = list(sentence_features)
        if len(features) < 2:
            raise ValueError("SentencePairLoss takes two columns or more: anchors, their positives, more negatives")
        embeddings = [self.model(column)["sentence_embedding"] for column in features]
        return self.compute_loss_from_embeddings(embeddings, labels)

    def compute_loss_from_embeddings(self, embeddings: Sequence[Tensor], labels: Tensor | None = None) -> Tensor:
        """Return the loss of embeddings that are computed already, as the wrappers of sentence-transformers call it."""
        anchors, references = embeddings[0], torch.cat([*embeddings[1:]])
        rows = torch.arange(len(anchors), device=anchors.device)
        columns = torch.arange(len(references), device=anchors.device)
        value: Tensor = self.loss(anchors, rows, ref_embeddings=references, ref_labels=columns)
        return value


class LabelEvaluator(BaseEvaluator):
    """Exact retrieval, clustering and verification metrics for sentence-transformers, from texts with class labels.

    Every text is a query against all others, or against a gallery. The metrics are those of
    `kinfold.metrics.evaluate`.

    Args:
        inputs: Texts, or whatever else the model encodes.
        labels: Class of each text, integers or strings.
        gallery: Texts to search in; the inputs themselves if left out.
        gallery_labels: Their classes.
        metrics: Names of metrics; by default recall@1, 2, 4, 8, R-precision and MAP@R.
        primary_metric: The metric that selects the best checkpoint; by default the last of `metrics`.
        distance: "cosine", "dot", "euclidean" or "hyperbolic".
        name: Prefix of the names of the results.
        batch_size: Texts that the model encodes at a time.

    Raises:
        ImportError: sentence-transformers is not installed.
        ValueError: `primary_metric` is not among the metrics, or lengths differ.
    """

    def __init__(
        self,
        inputs: Sequence[Any],
        labels: Labels,
        gallery: Sequence[Any] | None = None,
        gallery_labels: Labels | None = None,
        metrics: Sequence[str] | None = None,
        primary_metric: str | None = None,
        distance: str = "cosine",
        name: str = "",
        batch_size: int = 32,
    ) -> None:
        if BaseEvaluator is object:
            import_optional("sentence_transformers", "sentence-transformers", "sentence-transformers", "LabelEvaluator")
        super().__init__()
        if len(inputs) != len(labels):
            raise ValueError(f"{len(labels)} labels for {len(inputs)} inputs: one label for each is needed")
        self.inputs, self.labels = inputs, labels
        self.gallery, self.gallery_labels = gallery, gallery_labels
        self.metrics = ["recall@1", "recall@2", "recall@4", "recall@8", "r-precision", "map@r"]
        if metrics is not None:
            self.metrics = [*metrics]
        if primary_metric is not None and primary_metric not in self.metrics:
            raise ValueError(f"primary_metric = {primary_metric!r} is not one of {', '.join(self.metrics)}")
        self.primary_metric = primary_metric or self.metrics[-1]
        self.distance = distance
        self.name = name
        self.batch_size = batch_size

    def __call__(
        self, model: Any, output_path: str | None = None, epoch: int = -1, steps: int = -1
    ) -> dict[str, float]:
        """Return the metrics of a model by name, with `name_` before each if there is a name.

        Args:
            model: A SentenceTransformer.
            output_path: Not used: the trainer logs the results.
            epoch, steps: For the model card.
        """
        scores: dict[str, float] = evaluate(
            self._encode(model, self.inputs),
            self.labels,
            gallery=None if self.gallery is None else self._encode(model, self.gallery),
            gallery_labels=self.gallery_labels,
            metrics=self.metrics,
            distance=self.distance,  # type: ignore[arg-type]
        )
        results: dict[str, float] = self.prefix_name_to_metrics(dict(scores), self.name)
        self.store_metrics_in_model_card_data(model, results, epoch, steps)
        return results

    def _encode(self, model: Any, inputs: Sequence[Any]) -> Tensor:
        embeddings: Tensor = model.encode(
            inputs, batch_size=self.batch_size, convert_to_tensor=True, show_progress_bar=False
        )
        return embeddings.float().cpu()

    @property
    def description(self) -> str:
        """Title in the model card."""
        return "Exact metrics of kinfold"

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings for the model card."""
        return {"metrics": self.metrics, "distance": self.distance}
