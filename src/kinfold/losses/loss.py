"""What all losses share: the call, the measure, tuples, reduction, and the weight each pair gets."""

import inspect
import warnings
from typing import ClassVar, Literal, TypeAlias

import torch
from torch import Tensor, nn

from kinfold.losses.proxies import check_class_range
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.losses.training_check import TrainingCheck
from kinfold.pairs import (
    Labels,
    Quadruplets,
    Relation,
    Triplets,
    View,
    dot,
    full_precision,
    normalize,
    snr,
    squared_euclidean,
    view,
)
from kinfold.pairs.measures import root, sphere_squared
from kinfold.pairs.view import check_embeddings

Reduction: TypeAlias = Literal["mean", "sum", "none"]
Tuples: TypeAlias = Relation | Triplets | Quadruplets

# the distance itself is the root of what is measured: see Loss._measure
_MEASURES = {
    "cosine": dot,  # of unit vectors
    "dot": dot,
    "euclidean": squared_euclidean,
    "squared-euclidean": squared_euclidean,
    "snr": snr,
}


class Loss(nn.Module):
    """A value for a batch of embeddings; its derivative by the similarity of a pair is the weight of that pair.

    A concrete loss states what it works on (`kind`, `measure`, `normalize`) and turns scored pairs into `terms`:

    - kind "pair": one value per pair (B, R); "anchor": one per row (B,), from that row alone; "batch": one in all.
    - measure: "cosine", "dot", "euclidean", "squared-euclidean" or "snr"; `normalize`: on unit vectors or as given.

    Losses with `proxies` compare every sample with one or more vectors per class instead of with other samples.
    """

    kind: ClassVar[Literal["pair", "anchor", "batch"]] = "anchor"
    measure: ClassVar[Literal["cosine", "dot", "euclidean", "squared-euclidean", "snr"]] = "cosine"
    normalize: ClassVar[bool] = True
    proxies: nn.Parameter | None

    def __init__(self, reduction: Reduction = "mean") -> None:
        super().__init__()
        if reduction not in ("mean", "sum", "none"):
            raise ValueError(f"reduction must be 'mean', 'sum' or 'none', got {reduction!r}")
        if reduction == "none" and self.kind == "batch":
            raise ValueError(
                f"{type(self).__name__} is one number for the whole batch: reduction='none' has no meaning"
            )
        self.reduction: Reduction = reduction
        self.register_parameter("proxies", None)
        self._training_check = TrainingCheck()
        self._told_of_missing_pairs = False

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
        tuples: Tuples | None = None,
    ) -> Tensor:
        """The loss of a batch.

        embeddings (B, d), any floating type; labels (B,), integers or strings; or relation (B, R), boolean or real.
        ref_embeddings (R, d) with ref_labels (R,): what the anchors are compared with, instead of with each other.
        ids (B,), ref_ids (R,): equal ids are one item, which makes no pair with itself.
        tuples: what a miner chose.
        """
        with full_precision(embeddings):
            seen = self._look(embeddings, labels, relation, ref_embeddings, ref_labels, ids, ref_ids, tuples)
            self._training_check(self)
            terms = self._terms(self._measure(seen, tuples), seen, tuples)
            return self._reduce(terms, self.penalty(seen.anchors))

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
        tuples: Tuples | None = None,
    ) -> Tensor:
        """dL/dS (B, R): how hard the mean loss pulls (negative) or pushes (positive) every pair.

        S is the cosine for losses on unit vectors, through the distance where there is one, and the dot product for
        losses on it. Proxy losses: (B, number of proxies).
        """
        if not self.normalize and self.measure != "dot":
            raise ValueError(
                f"{type(self).__name__} works on distances of raw embeddings, which no similarity alone determines: "
                "pair weights are defined for losses on cosines or dot products"
            )
        if self.measure == "snr":
            raise ValueError(f"{type(self).__name__} works on variance ratios, not on similarities: no pair weights")
        with full_precision(embeddings), torch.enable_grad():
            seen = self._look(embeddings.detach(), labels, relation, ref_embeddings, ref_labels, ids, ref_ids, tuples)
            measured = self._measure(seen, tuples).detach().requires_grad_()
            value = self._terms(measured, seen, tuples).mean()
            (weights,) = torch.autograd.grad(value, measured)
        if self.measure in ("euclidean", "squared-euclidean"):
            weights = -2.0 * weights  # on the unit sphere the squared distance is 2 - 2 s
        return _scatter(weights, tuples, seen) if isinstance(tuples, Triplets | Quadruplets) else weights

    def terms(self, pairs: ScoredPairs) -> Terms:
        """The loss of scored pairs (B, R)."""
        raise NotImplementedError(f"{type(self).__name__} does not say what it computes")

    def triplet_terms(self, kin: Tensor, other: Tensor, valid: Tensor) -> Terms | None:
        """The loss of mined triplets from the scores (T,) of (a, p) and (a, n); None where triplets mean nothing."""
        return None

    def penalty(self, embeddings: Tensor) -> Tensor | None:
        """A term on each embedding alone (B,), added to the loss; None for most losses."""
        return None

    def regularizer(self) -> Tensor | None:
        """A term on the loss' own parameters, a scalar added to the mean and to the sum; None for most losses."""
        return None

    def extra_repr(self) -> str:
        options = [name for name in inspect.signature(type(self)).parameters if hasattr(self, name)]
        shown = {name: getattr(self, name) for name in options}
        return ", ".join(f"{k}={v!r}" for k, v in shown.items() if not isinstance(v, Tensor | torch.Generator))

    def _look(
        self,
        embeddings: Tensor,
        labels: Labels | None,
        relation: Tensor | None,
        ref_embeddings: Tensor | None,
        ref_labels: Labels | None,
        ids: Tensor | None,
        ref_ids: Tensor | None,
        tuples: Tuples | None,
    ) -> View:
        if self.proxies is not None:
            if tuples is not None:
                raise ValueError(f"{type(self).__name__} compares samples with its own proxies: it takes no tuples")
            if ref_embeddings is not None or ref_labels is not None or ids is not None or ref_ids is not None:
                raise ValueError(
                    f"{type(self).__name__} compares samples with its own proxies: it takes no reference set and no ids"
                )
            return self._look_at_proxies(embeddings, labels, relation)
        seen = view(
            embeddings,
            labels,
            relation=relation,
            ref_embeddings=ref_embeddings,
            ref_labels=ref_labels,
            ids=ids,
            ref_ids=ref_ids,
        )
        if seen.relation.degree is not None and self.kind != "pair":
            raise ValueError(
                f"{type(self).__name__} needs a boolean relation; a real-valued one means something only to losses "
                "that work pair by pair (contrastive, margin, binomial, similarity-margin, similarity-contrastive)"
            )
        return seen

    def _look_at_proxies(self, embeddings: Tensor, labels: Labels | None, relation: Tensor | None) -> View:
        assert self.proxies is not None
        count, dim = self.proxies.shape[0], self.proxies.shape[-1]
        anchors = check_embeddings(embeddings, "embeddings")
        if anchors.shape[1] != dim:
            raise ValueError(f"embeddings have {anchors.shape[1]} dimensions but the proxies {dim}: create with dim=")
        dtype = torch.promote_types(anchors.dtype, check_embeddings(self.proxies.view(-1, dim), "proxies").dtype)
        if relation is None:
            classes = torch.arange(count, device=anchors.device)
            found = view(anchors, labels, ref_embeddings=anchors.new_zeros(count, dim), ref_labels=classes)
            assert found.labels is not None
            check_class_range(found.labels, count)
        else:
            if relation.dtype != torch.bool:
                raise ValueError(f"a relation to proxies must be boolean (B, {count}), got {relation.dtype}")
            found = view(anchors, relation=relation, ref_embeddings=anchors.new_zeros(count, dim))
        return View(anchors.to(dtype), self.proxies.to(dtype).flatten(0, -2), found.relation, found.labels, False)

    def _measure(self, seen: View, tuples: Tuples | None) -> Tensor:
        """What the weight of a pair is taken by: its similarity, squared distance or variance ratio.

        (B, R), or (2, T) for the (a, p) and (a, n) sides of T triplets, there from differences and not from products.
        """
        x, y = seen.anchors, seen.references
        if self.normalize:
            x, y = normalize(x), normalize(y)
        if isinstance(tuples, Triplets | Quadruplets):
            measure = _MEASURES[self.measure]
            a = x[tuples.anchor]
            return torch.stack([measure(a, y[tuples.positive], rows=True), measure(a, y[tuples.negative], rows=True)])
        if self.normalize and self.measure in ("euclidean", "squared-euclidean"):
            return sphere_squared(x, y)
        return _MEASURES[self.measure](x, y)

    def _terms(self, measured: Tensor, seen: View, tuples: Tuples | None) -> Terms:
        scores = root(measured) if self.measure == "euclidean" else measured
        if scores.numel() == 0:
            return Terms.over(self._nothing(scores), 0)
        if isinstance(tuples, Quadruplets):
            raise ValueError(f"{type(self).__name__} does not take quadruplets; the quadruplet loss does")
        if isinstance(tuples, Triplets):
            return self._terms_of_triplets(scores, seen, tuples)
        relation = seen.relation if tuples is None else tuples
        if relation.positives.shape != scores.shape and self.proxies is None:
            raise ValueError(
                f"the mined relation has shape {tuple(relation.positives.shape)}, the pairs {tuple(scores.shape)}: "
                "mine on the same batch and reference set"
            )
        self._tell_of_missing_pairs(relation)
        labels = None if seen.labels is None else seen.labels[:, None]
        if relation.degree is None:
            pairs = ScoredPairs(scores, relation.positives, relation.negatives, None, labels, seen.symmetric)
            return self.terms(pairs)
        # a pair of degree r is counted twice: r as kin, 1 - r as other
        nobody = torch.zeros_like(relation.positives)
        degree = relation.degree.to(scores)
        terms = self.terms(
            ScoredPairs(
                torch.stack([scores, scores]),
                torch.stack([relation.positives, nobody]),
                torch.stack([nobody, relation.negatives]),
                torch.stack([degree, 1.0 - degree]),
                labels,
                seen.symmetric,
            )
        )
        return terms._replace(values=terms.values.sum(dim=0))

    def _terms_of_triplets(self, scores: Tensor, seen: View, tuples: Triplets) -> Terms:
        if self.kind == "pair":
            nobody = torch.zeros_like(tuples.valid)
            labels = None if seen.labels is None else seen.labels[tuples.anchor]
            kin, other = torch.stack([tuples.valid, nobody]), torch.stack([nobody, tuples.valid])
            terms = self.terms(ScoredPairs(scores, kin, other, None, labels, seen.symmetric, from_triplets=True))
            return terms._replace(values=terms.values.sum(dim=0))
        mined = self.triplet_terms(scores[0], scores[1], tuples.valid)
        if mined is None:
            raise ValueError(
                f"{type(self).__name__} looks at whole neighbourhoods, not at triplets: use a miner that selects pairs "
                "(all, multi-similarity, semihard-pairs, distance-weighted-pairs)"
            )
        return mined

    def _reduce(self, terms: Terms, penalty: Tensor | None) -> Tensor:
        # a batch without a single valid pair says nothing, not even about lengths or proxies
        anything = terms.counts.sum() > 0
        if self.reduction == "none":
            return terms.values if penalty is None else terms.values + torch.where(anything, penalty, 0.0)
        value = terms.mean() if self.reduction == "mean" else terms.values.sum()
        if penalty is not None:
            extra = penalty.mean() if self.reduction == "mean" else penalty.sum()
            value = value + torch.where(anything, extra, 0.0)
        own = self.regularizer()
        return value if own is None else value + torch.where(anything, own, 0.0)

    def _nothing(self, scores: Tensor) -> Tensor:
        """Zeros in the shape of the values, with a graph, for a batch or a reference set without rows."""
        if self.kind == "pair":
            return scores
        return scores.sum(dim=-1) if self.kind == "anchor" else scores.sum()

    def _tell_of_missing_pairs(self, relation: Relation) -> None:
        if torch.compiler.is_compiling() or self._told_of_missing_pairs or self.proxies is not None:
            return
        kin, other = bool(relation.positives.any()), bool(relation.negatives.any())
        if not (kin and other):
            self._told_of_missing_pairs = True
            missing = "no two items of one class" if not kin else "no two items of different classes"
            warnings.warn(
                f"{type(self).__name__} was given a batch with {missing}; such batches teach little or nothing. "
                "Use a sampler that draws several items of several classes, such as "
                'kinfold.samplers.create("spc", labels, batch_size=80, per_class=5).',
                stacklevel=4,
            )


def _scatter(weights: Tensor, tuples: Triplets | Quadruplets, seen: View) -> Tensor:
    """(2, T) weights of the two sides of triplets, added up in the (B, R) matrix of pairs."""
    matrix = weights.new_zeros(seen.anchors.shape[0], seen.references.shape[0])
    for side, column in zip(weights, (tuples.positive, tuples.negative), strict=True):
        matrix.index_put_((tuples.anchor, column), side, accumulate=True)
    return matrix
