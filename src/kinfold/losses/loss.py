"""What all losses share: the call, scores, mined tuples, reduction, and the weights of pairs."""

import inspect
from dataclasses import replace
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn

from kinfold.losses.checks import check_attributes, check_degree, check_sample_weight, check_terms, warn_missing_pairs
from kinfold.losses.engine import PairProgram
from kinfold.losses.mined_terms import evaluate_tuples
from kinfold.losses.opaque import compute_opaque, is_large, register_loss
from kinfold.losses.pair_weights import compute_pair_weights
from kinfold.losses.proxies import make_proxy_batch
from kinfold.losses.scoring import Measure, Scoring, choose_scoring
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.losses.training_check import TrainingCheck
from kinfold.pairs import Labels, PairBatch, Quadruplets, Relation, Triplets, full_precision, make_pair_batch
from kinfold.pairs.distances import COSINE, Distance, PairDistance, read_distance
from kinfold.pairs.index_tuples import IndexTensors, Tuples, read_tuples
from kinfold.pairs.pair_batch import nan_unless_finite
from kinfold.pairs.relation_source import MatrixRelation, RelationSource
from kinfold.pairs.transforms import is_transformed

Reduction: TypeAlias = Literal["mean", "sum", "none"]


class Loss(nn.Module):
    """Base class of all losses: a value for a batch of embeddings.

    The derivative of the value by the similarity of a pair is the weight of that pair, see `pair_weights`.

    A subclass declares what it works on (`kind`, `measure`, `normalize`) and implements `terms`, which computes values
    from scores and masks. This class does the rest: it checks arguments, computes scores, applies the selection of a
    miner, reduces the values, and processes large batches in row chunks.

    Args:
        reduction: "mean", "sum" or "none".
        distance: How pairs are measured instead, see `kinfold.pairs.distances`; None for the measure of the paper.

    Attributes:
        kind: "pair": one value per pair (B, R). "anchor": one value per anchor (B,), from its row of scores only.
            "batch": one value for the whole batch.
        measure: What the scores are: "cosine", "dot", "euclidean", "squared-euclidean", "snr" or "hyperbolic".
        normalize: Whether embeddings are scaled to length one first.
        supports_chunks: Whether `terms` may be called for a part of the rows at a time; needs kind "pair" or "anchor",
            or terms of a batch that can be added.
        elementwise: For kind "pair": whether the value of a pair depends on its score and its sign alone. Half of the
            matrix is enough then if a batch is compared with itself.
        whole_classes: Whether rows that are processed at a time must hold all anchors of their classes. Batches with
            labels are sorted by class for it.
        graded: For kind "anchor" or "batch": whether `terms` uses `ScoredPairs.degree`, so that the loss accepts a
            real-valued relation.
        uses_lengths: Whether `terms` needs the lengths of the embeddings too; for losses with class vectors.
        fixed_measure: Why the loss takes no other distance; None if it takes one.
        compiles_tiles: Whether tiles are compiled, see `kinfold.losses.compile`.
        uses_labels: Whether the loss uses labels in addition to `relation=`, as a loss with one parameter per class
            does. Other losses refuse labels beside a relation, because they would be ignored.
        proxies: Class vectors (C, d) or (C, K, d) that samples are compared with instead of with each other, or None.
        proxies_are_anchors: Whether the rows of scores belong to the proxies and the columns to the samples.
    """

    kind: Literal["pair", "anchor", "batch"] = "anchor"
    measure: Measure = "cosine"
    normalize: bool = True
    supports_chunks: bool = True
    elementwise: bool = False
    whole_classes: bool = False
    graded: bool = False
    uses_labels: bool = False
    uses_lengths: bool = False
    fixed_measure: str | None = None
    distance: Distance | None = None
    _scoring: Scoring | None = None
    compiles_tiles: bool = False
    proxies_are_anchors: bool = False
    proxies: nn.Parameter | None

    def __init__(self, reduction: Reduction = "mean", distance: Distance | None = None) -> None:
        super().__init__()
        check_attributes(self, Loss)
        if distance is not None:
            self.distance = distance
            self._scoring = choose_scoring(type(self).__name__, self.measure, distance)
            self.measure, self.normalize = self._scoring.measure, self._scoring.unit
        if reduction not in ("mean", "sum", "none"):
            raise ValueError(f"reduction must be 'mean', 'sum' or 'none', got {reduction!r}")
        if reduction == "none" and self.kind == "batch":
            raise ValueError(
                f"{type(self).__name__} is one number for the whole batch: reduction='none' has no meaning"
            )
        self.reduction: Reduction = reduction
        self.register_parameter("proxies", None)
        self._training_check = TrainingCheck()
        self.number = register_loss(self)
        self.warn_missing_pairs = True  # once, for a batch without positive or without negative pairs

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self.number = register_loss(self)  # a copy is another loss

    def forward(
        self,
        embeddings: Tensor,
        labels: Labels | None = None,
        *,
        relation: Tensor | None = None,
        ref_embeddings: Tensor | None = None,
        ref_labels: Labels | None = None,
        ids: Tensor | None = None,
        ref_ids: Tensor | None = None,
        tuples: Tuples | IndexTensors | None = None,
        sample_weight: Tensor | None = None,
    ) -> Tensor:
        """Return the loss of a batch; NaN if an embedding is NaN or infinite.

        Args:
            embeddings: (B, d), any floating point type.
            labels: (B,), integers or strings. Items with equal labels are positives.
            relation: (B, R), boolean or real in [0, 1]; replaces the labels.
            ref_embeddings: (R, d), references that the anchors are compared with instead of with each other.
            ref_labels: (R,), labels of the references.
            ids: (B,), int64. Equal ids are the same item, and the pair of an item with itself is not used.
            ref_ids: (R,), ids of the references.
            tuples: The selection of a miner, instead of all pairs: `Relation`, `Triplets` or `Quadruplets` of
                kinfold.pairs, or index tensors as in pytorch-metric-learning, (anchor, positive, negative) or (anchor1,
                positive, anchor2, negative).
            sample_weight: (B,), not negative: the weight of each anchor. It multiplies the values of the anchor, and
                the mean is divided by the weighted count: an anchor of weight zero is left out as an anchor and stays a
                reference of the others. There is no gradient by the weights.

        Returns:
            A scalar, or one value per pair (B, R) or anchor (B,) with reduction="none". Without a valid pair it is zero
            and differentiable.

        Raises:
            ValueError: An argument has a wrong type or shape, is missing, or would be ignored.
        """
        with full_precision(embeddings):
            batch = self._make_batch(embeddings, labels, relation, ref_embeddings, ref_labels, ids, ref_ids, tuples)
            batch = replace(batch, weights=check_sample_weight(self, sample_weight, embeddings))
            selected = self.select_tuples(self._read_tuples(tuples, batch), batch)
            self._training_check(self)
            return self._reduce(self._terms(batch, selected), batch) + nan_unless_finite(batch)

    def pair_weights(
        self,
        embeddings: Tensor,
        labels: Labels | None = None,
        *,
        relation: Tensor | None = None,
        ref_embeddings: Tensor | None = None,
        ref_labels: Labels | None = None,
        ids: Tensor | None = None,
        ref_ids: Tensor | None = None,
        tuples: Tuples | IndexTensors | None = None,
        sample_weight: Tensor | None = None,
    ) -> Tensor:
        """Return dL/dS (B, R), the weight of every pair in the mean loss.

        A negative weight pulls the pair together, a positive one pushes it apart.

        S is the cosine for losses on unit vectors, also for those on distances, and the dot product for losses on dot
        products. Arguments as in `forward`. Proxy losses: (B, number of proxies).

        Raises:
            ValueError: The loss is not determined by similarities.
        """
        slope = self.scoring.similarity_slope
        if slope is None or not self.has_pair_weights:
            raise ValueError(
                f"{type(self).__name__} has no pair weights: it works on more than similarities "
                "(distances of raw embeddings, variance ratios or angles), and they alone do not determine it"
            )
        with full_precision(embeddings), torch.enable_grad():
            batch = self._make_batch(
                embeddings.detach(), labels, relation, ref_embeddings, ref_labels, ids, ref_ids, tuples
            )
            batch = replace(batch, weights=check_sample_weight(self, sample_weight, embeddings))
            selected = self.select_tuples(self._read_tuples(tuples, batch), batch)
            weights = compute_pair_weights(self._make_program(batch, selected), selected)
            return slope * weights + nan_unless_finite(batch)

    def terms(self, pairs: ScoredPairs) -> Terms:
        """Compute the loss of scored pairs (B, R); implemented by each loss."""
        raise NotImplementedError(f"{type(self).__name__} has only tuple_terms: it needs mined tuples")

    def counts(self, relation: RelationSource) -> Tensor | None:
        """Return the counts of `terms` if the boolean relation alone determines them, else None.

        Large batches are processed in tiles. If there is more than one ratio, the counts save a gradient for each.
        """
        return None

    def tuple_terms(self, scores: Tensor, tuples: Triplets | Quadruplets) -> Terms | None:
        """Compute the loss of mined tuples; None if the loss does not support them.

        Args:
            scores: (2, T), scores of (a, p) and (a, n); for quadruplets (3, T), with (n, fourth) in the third row.
            tuples: The tuples.
        """
        return None

    def select_tuples(self, tuples: Tuples | None, batch: PairBatch) -> Tuples | None:
        """Return the tuples to use, given those of a miner or None. A loss without a form over all pairs draws them
        here."""
        return tuples

    def penalty(self, embeddings: Tensor) -> Tensor | None:
        """Return a term of each single embedding (B,) that is added to the loss; None for most losses."""
        return None

    def regularizer(self) -> Tensor | None:
        """Return a term of the loss' parameters, a scalar added to mean and sum; None for most losses."""
        return None

    @property
    def has_pair_weights(self) -> bool:
        """Whether similarities alone determine this loss, so that `pair_weights` works."""
        return self.scoring.similarity_slope is not None

    @property
    def takes_sample_weight(self) -> bool:
        """Whether `sample_weight` has a meaning: the loss is a mean over anchors, and these are samples."""
        return self.kind != "batch" and not self.proxies_are_anchors

    @property
    def scoring(self) -> Scoring:
        """The measure of this loss."""
        return self._scoring or Scoring(self.measure, self.normalize)

    @property
    def pair_distance(self) -> PairDistance:
        """The distance whose similarities or distances are the scores, which miners follow."""
        if self.distance is not None:
            return read_distance(self.distance)
        if self.measure in ("dot", "snr"):
            return PairDistance("dot" if self.measure == "dot" else "snr")
        return COSINE if self.normalize else PairDistance("euclidean")

    def extra_repr(self) -> str:
        names = [name for name in inspect.signature(type(self)).parameters if hasattr(self, name)]
        options = {name: getattr(self, name) for name in names}
        return ", ".join(
            f"{k}={v!r}" for k, v in options.items() if not isinstance(v, Tensor | torch.Generator | nn.Module)
        )

    def _make_batch(
        self,
        embeddings: Tensor,
        labels: Labels | None,
        relation: Tensor | None,
        ref_embeddings: Tensor | None,
        ref_labels: Labels | None,
        ids: Tensor | None,
        ref_ids: Tensor | None,
        tuples: Tuples | IndexTensors | None,
    ) -> PairBatch:
        if labels is not None and relation is not None and not self.uses_labels:
            raise ValueError(
                f"{type(self).__name__} takes positives and negatives from relation= and would ignore labels: give one "
                "of them (a custom loss that reads pairs.labels sets uses_labels = True)"
            )
        if self.proxies is not None:
            if tuples is not None:
                raise ValueError(f"{type(self).__name__} compares samples with its own proxies: it takes no tuples")
            if ref_embeddings is not None or ref_labels is not None or ids is not None or ref_ids is not None:
                raise ValueError(
                    f"{type(self).__name__} compares samples with its own proxies: it takes no reference set and no ids"
                )
            return make_proxy_batch(self.proxies, embeddings, labels, relation, as_anchors=self.proxies_are_anchors)
        batch = make_pair_batch(
            embeddings,
            labels,
            relation=relation,
            ref_embeddings=ref_embeddings,
            ref_labels=ref_labels,
            ids=ids,
            ref_ids=ref_ids,
        )
        check_degree(self, batch.source.degree)
        return batch

    def _read_tuples(self, tuples: Tuples | IndexTensors | None, batch: PairBatch) -> Tuples | None:
        """Check the tuples that were passed."""
        if tuples is None:
            return None
        if batch.source.degree is not None:
            raise ValueError("a real-valued relation= and tuples= both weight the pairs: give one of them")
        selected = read_tuples(tuples, (batch.anchors.shape[0], batch.references.shape[0]), batch.anchors.device)
        if isinstance(selected, Relation):
            check_degree(self, selected.degree)
        return selected

    def _make_program(self, batch: PairBatch, tuples: Tuples | None) -> PairProgram:
        source = MatrixRelation(tuples) if isinstance(tuples, Relation) else batch.source
        return PairProgram(self, batch, source, self._call_terms)

    def _terms(self, batch: PairBatch, tuples: Tuples | None) -> Terms:
        if self.warn_missing_pairs and self.proxies is None and not is_transformed():
            self.warn_missing_pairs = not warn_missing_pairs(type(self).__name__, batch.source)
        x, y = self.scoring.make_operands(batch)
        if isinstance(tuples, Triplets | Quadruplets) and y.shape[0]:
            return evaluate_tuples(self, self.scoring.measure_tuples(x, y, tuples), batch, tuples)
        program = self._make_program(batch, tuples)
        if self.reduction != "none" and is_large(program.source):
            return Terms.over(*compute_opaque(program, x, y))
        if self.reduction == "none" or is_transformed():
            return program.evaluate_whole(x, y)
        return Terms.over(*self.compute(program, x, y))

    def compute(self, program: PairProgram, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return the reduced value and whether there was anything to reduce; arguments as in `PairProgram.compute`.

        A loss that can be computed in a faster way than from its terms overrides this.
        """
        return program.compute(x, y)

    def _call_terms(self, pairs: ScoredPairs) -> Terms:
        """Compute the terms and check them."""
        terms = self.terms(pairs)
        check_terms(terms, pairs, self.kind, type(self).__name__)
        return terms

    def _reduce(self, terms: Terms, batch: PairBatch) -> Tensor:
        # without a valid pair the loss is zero, including penalties on lengths and proxies
        has_terms, penalty = terms.counts.sum() > 0, self.penalty(batch.anchors)
        if penalty is not None and batch.weights is not None:
            penalty = penalty * batch.weights
        if self.reduction == "none":
            return terms.values if penalty is None else terms.values + torch.where(has_terms, penalty, 0.0)
        mean = self.reduction == "mean" or self.kind == "batch"
        value = terms.mean() if mean else terms.values.sum()
        if penalty is not None:
            number = penalty.shape[0] if batch.weights is None else batch.weights.sum().clamp(min=1e-30)
            extra = penalty.sum() / number if mean else penalty.sum()
            value = value + torch.where(has_terms, extra, 0.0)
        regularizer = self.regularizer()
        return value if regularizer is None else value + torch.where(has_terms, regularizer, 0.0)
