"""What all losses share: the call, the measure, tuples, reduction, and the weight each pair gets."""

import inspect
import warnings
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

from kinfold.losses.authoring import check_declared
from kinfold.losses.blocks import sums_by_rows, worthwhile
from kinfold.losses.proxies import look_at_proxies
from kinfold.losses.scoring import Measure, Scoring
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.losses.training_check import TrainingCheck
from kinfold.pairs import Labels, Quadruplets, Relation, Triplets, View, full_precision, view
from kinfold.pairs.index_tuples import IndexTensors, Tuples, read_tuples
from kinfold.pairs.masks import count
from kinfold.pairs.transforms import is_transformed

Reduction: TypeAlias = Literal["mean", "sum", "none"]


class Loss(nn.Module):
    """A value for a batch of embeddings; its derivative by the similarity of a pair is the weight of that pair.

    A concrete loss states what it works on (`kind`, `measure`, `normalize`) and turns scored pairs into `terms`:

    - kind "pair": one value per pair (B, R); "anchor": one per row (B,), from that row alone; "batch": one in all.
    - measure: "cosine", "dot", "euclidean", "squared-euclidean" or "snr"; `normalize`: on unit vectors or as given.

    Losses with `proxies` compare every sample with one or more vectors per class instead of with other samples.

    Large batches are taken by blocks of rows where the kind allows it (`by_rows`).

    `uses_labels`: whether labels mean something beside `relation=`, as to a loss with one parameter per class. To the
    others they would be given in vain, and are refused.
    """

    kind: Literal["pair", "anchor", "batch"] = "anchor"
    measure: Measure = "cosine"
    normalize: bool = True
    by_rows: bool = True
    uses_labels: bool = False
    proxies_are_anchors: bool = False
    proxies: nn.Parameter | None

    def __init__(self, reduction: Reduction = "mean") -> None:
        super().__init__()
        check_declared(self, Loss)
        if reduction not in ("mean", "sum", "none"):
            raise ValueError(f"reduction must be 'mean', 'sum' or 'none', got {reduction!r}")
        if reduction == "none" and self.kind == "batch":
            raise ValueError(
                f"{type(self).__name__} is one number for the whole batch: reduction='none' has no meaning"
            )
        self.reduction: Reduction = reduction
        self.register_parameter("proxies", None)
        self._training_check = TrainingCheck()
        self.tell_of_missing_pairs = True  # once, where a batch has no pair to learn from

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
    ) -> Tensor:
        """The loss of a batch; NaN where an embedding is NaN or infinite.

        embeddings (B, d), any floating type; labels (B,), integers or strings; or relation (B, R), boolean or real.
        ref_embeddings (R, d) with ref_labels (R,): what the anchors are compared with, instead of with each other.
        ids (B,), ref_ids (R,): equal ids are one item, which makes no pair with itself.
        tuples: what a miner chose, instead of all pairs: `Relation`, `Triplets` or `Quadruplets` of kinfold.pairs, or
        index tensors as pytorch-metric-learning has them, (anchor, positive, negative) or (anchor1, positive, anchor2,
        negative).
        """
        with full_precision(embeddings):
            seen = self._look(embeddings, labels, relation, ref_embeddings, ref_labels, ids, ref_ids, tuples)
            selected = self.choose(self._read(tuples, seen), seen)
            self._training_check(self)
            return self._reduce(self._terms(seen, selected), self.penalty(seen.anchors)) + _nan_unless_finite(seen)

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
    ) -> Tensor:
        """dL/dS (B, R): how hard the mean loss pulls (negative) or pushes (positive) every pair.

        S is the cosine for losses on unit vectors, through the distance where there is one, and the dot product for
        losses on it. Proxy losses: (B, number of proxies).
        """
        factor = self.scoring.by_similarity
        if factor is None or not self.has_pair_weights:
            raise ValueError(
                f"{type(self).__name__} has no pair weights: it works on more than similarities "
                "(distances of raw embeddings, variance ratios or angles), and they alone do not determine it"
            )
        with full_precision(embeddings), torch.enable_grad():
            seen = self._look(embeddings.detach(), labels, relation, ref_embeddings, ref_labels, ids, ref_ids, tuples)
            selected = self.choose(self._read(tuples, seen), seen)
            x, y = self.scoring.operands(seen)
            if isinstance(selected, Triplets | Quadruplets) and y.shape[0]:
                measured = self.scoring.sides(x, y, selected).detach().requires_grad_()
                value = self._terms_of_tuples(measured, seen, selected).mean()
                (sides,) = torch.autograd.grad(value, measured)
                return _scatter(factor * sides, selected, seen) + _nan_unless_finite(seen)
            relation_used = selected if isinstance(selected, Relation) else seen.relation
            measured = self.scoring.matrix(x, y, relation_used).detach().requires_grad_()
            value = self._terms_of_rows(measured, seen, relation_used, slice(None), x, y).mean()
            (weights,) = torch.autograd.grad(value, measured)
            return factor * (weights.T if self.proxies_are_anchors else weights) + _nan_unless_finite(seen)

    def terms(self, pairs: ScoredPairs) -> Terms:
        """The loss of scored pairs (B, R)."""
        raise NotImplementedError(f"{type(self).__name__} has tuple_terms alone: it is for mined tuples")

    def counts(self, relation: Relation) -> Tensor | None:
        """The counts of `terms` over the whole boolean relation where that alone determines them; saves a pass when
        large batches are taken by blocks and there is more than one ratio."""
        return None

    def tuple_terms(self, scores: Tensor, tuples: Triplets | Quadruplets) -> Terms | None:
        """The loss of mined tuples from the scores (2, T) of (a, p) and (a, n), and (n, l) of quadruplets in a third
        row; None where they mean nothing."""
        return None

    def choose(self, tuples: Tuples | None, seen: View) -> Tuples | None:
        """What to look at, given what a miner chose or None; a loss without a form over all pairs draws here."""
        return tuples

    def penalty(self, embeddings: Tensor) -> Tensor | None:
        """A term on each embedding alone (B,), added to the loss; None for most losses."""
        return None

    def regularizer(self) -> Tensor | None:
        """A term on the loss' own parameters, a scalar added to the mean and to the sum; None for most losses."""
        return None

    @property
    def has_pair_weights(self) -> bool:
        """Whether the similarities alone determine this loss, so that it has a derivative by them."""
        return self.scoring.by_similarity is not None

    @property
    def scoring(self) -> Scoring:
        return Scoring(self.measure, self.normalize)

    def extra_repr(self) -> str:
        options = [name for name in inspect.signature(type(self)).parameters if hasattr(self, name)]
        shown = {name: getattr(self, name) for name in options}
        return ", ".join(
            f"{k}={v!r}" for k, v in shown.items() if not isinstance(v, Tensor | torch.Generator | nn.Module)
        )

    def _look(
        self,
        embeddings: Tensor,
        labels: Labels | None,
        relation: Tensor | None,
        ref_embeddings: Tensor | None,
        ref_labels: Labels | None,
        ids: Tensor | None,
        ref_ids: Tensor | None,
        tuples: Tuples | IndexTensors | None,
    ) -> View:
        if labels is not None and relation is not None and not self.uses_labels:
            raise ValueError(
                f"{type(self).__name__} takes positives and negatives from relation= and would ignore labels: give one "
                "of them (a loss of your own that reads pairs.labels says so with uses_labels = True)"
            )
        if self.proxies is not None:
            if tuples is not None:
                raise ValueError(f"{type(self).__name__} compares samples with its own proxies: it takes no tuples")
            if ref_embeddings is not None or ref_labels is not None or ids is not None or ref_ids is not None:
                raise ValueError(
                    f"{type(self).__name__} compares samples with its own proxies: it takes no reference set and no ids"
                )
            return look_at_proxies(self.proxies, embeddings, labels, relation, as_anchors=self.proxies_are_anchors)
        seen = view(
            embeddings,
            labels,
            relation=relation,
            ref_embeddings=ref_embeddings,
            ref_labels=ref_labels,
            ids=ids,
            ref_ids=ref_ids,
        )
        self._check_degrees(seen.relation)
        return seen

    def _check_degrees(self, relation: Relation) -> None:
        if relation.degree is not None and self.kind != "pair":
            raise ValueError(
                f"{type(self).__name__} needs a boolean relation; a real-valued one means something only to losses "
                "that work pair by pair (contrastive, margin, binomial, similarity-margin, similarity-contrastive)"
            )

    def _read(self, tuples: Tuples | IndexTensors | None, seen: View) -> Tuples | None:
        """The tuples that were given, checked."""
        if tuples is None:
            return None
        if seen.relation.degree is not None:
            raise ValueError("a real-valued relation= and tuples= both say how much a pair counts: give one of them")
        selected = read_tuples(tuples, (seen.anchors.shape[0], seen.references.shape[0]), seen.anchors.device)
        if isinstance(selected, Relation):
            self._check_degrees(selected)
        return selected

    def _terms(self, seen: View, tuples: Tuples | None) -> Terms:
        self._tell_of_missing_pairs(seen.relation)
        x, y = self.scoring.operands(seen)
        if isinstance(tuples, Triplets | Quadruplets) and y.shape[0]:
            return self._terms_of_tuples(self.scoring.sides(x, y, tuples), seen, tuples)
        relation = tuples if isinstance(tuples, Relation) else seen.relation
        blocks = self.by_rows and self.reduction != "none"
        if not (blocks and worthwhile(x.shape[0], y.shape[0])):
            return self._terms_of_rows(self.scoring.matrix(x, y, relation), seen, relation, slice(None), x, y)
        known = self.counts(relation) if relation.degree is None else None

        def evaluate(rows: slice, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            part = Relation(relation.positives[rows], relation.negatives[rows])
            terms = self._terms_of_rows(self.scoring.matrix(x, y, part), seen, relation, rows, x, y)
            if self.reduction == "sum" and self.kind != "batch":
                return terms.values.sum().reshape(1), terms.counts.sum().reshape(1)
            if known is None:
                return terms.sums, terms.counts
            return terms._replace(counts=known.to(terms.sums)).mean().reshape(1), terms.counts.sum().reshape(1)

        own = [parameter for name, parameter in self.named_parameters() if name != "proxies"]
        sums, counts = sums_by_rows(evaluate, x, y, own)
        return Terms(sums.sum(), sums, counts if known is None else counts.sign())

    def _terms_of_rows(
        self, measured: Tensor, seen: View, relation: Relation, rows: slice, x: Tensor, y: Tensor
    ) -> Terms:
        """The terms of some rows of the matrix of pairs."""
        scores = self.scoring.scores(measured)
        if scores.numel() == 0:
            return Terms.over(self._nothing(scores), 0)
        positives, negatives = relation.positives[rows], relation.negatives[rows]
        labels = None if seen.labels is None else seen.labels[rows, None]
        if relation.degree is None:
            size = seen.anchors.shape[0]
            pairs = ScoredPairs(scores, positives, negatives, x, y, None, labels, seen.symmetric, batch_size=size)
            return self._stated(pairs)
        # a pair of degree r is counted twice: r as kin, 1 - r as other
        nobody, degree = torch.zeros_like(positives), relation.degree[rows].to(scores)
        kin, other = torch.stack([positives, nobody]), torch.stack([nobody, negatives])
        twice, weights = torch.stack([scores, scores]), torch.stack([degree, 1.0 - degree])
        terms = self._stated(ScoredPairs(twice, kin, other, x, y, weights, labels, seen.symmetric))
        return terms._replace(values=terms.values.sum(dim=0))

    def _stated(self, pairs: ScoredPairs) -> Terms:
        found = self.terms(pairs)
        if not isinstance(found, Terms):
            raise ValueError(
                f"{type(self).__name__}.terms gave back {type(found).__name__} instead of Terms; end it with "
                "pairs.per_anchor(values), pairs.per_pair(values) or Terms.over(values, count)"
            )
        found.check(self.kind, pairs.scores, type(self).__name__)
        if pairs.weights is not None and not found.weighted:
            raise ValueError(
                f"{type(self).__name__}.terms leaves out the weights of a real-valued relation: end it with "
                "pairs.per_pair(values, counted), which applies them; or apply pairs.weights to values, sums and "
                "counts, and return Terms(..., weighted=True)"
            )
        return found

    def _terms_of_tuples(self, measured: Tensor, seen: View, tuples: Triplets | Quadruplets) -> Terms:
        scores = self.scoring.scores(measured)
        if self.kind == "pair" and isinstance(tuples, Triplets):
            nobody = torch.zeros_like(tuples.valid)
            labels = None if seen.labels is None else seen.labels[tuples.anchor]
            kin, other = torch.stack([tuples.valid, nobody]), torch.stack([nobody, tuples.valid])
            pairs = ScoredPairs(scores, kin, other, labels=labels, symmetric=seen.symmetric, from_triplets=True)
            terms = self._stated(pairs)
            return terms._replace(values=terms.values.sum(dim=0))
        found = self.tuple_terms(scores, tuples)
        if found is None and isinstance(tuples, Quadruplets):
            raise ValueError(f"{type(self).__name__} does not take quadruplets; the quadruplet loss does")
        if found is None:
            raise ValueError(
                f"{type(self).__name__} looks at whole neighbourhoods, not at triplets: use a miner that selects pairs "
                "(all, multi-similarity, semihard-pairs, distance-weighted-pairs), or none (--set miner.name=none)"
            )
        return found

    def _reduce(self, terms: Terms, penalty: Tensor | None) -> Tensor:
        # a batch without a single valid pair says nothing, not even about lengths or proxies
        anything = terms.counts.sum() > 0
        if self.reduction == "none":
            return terms.values if penalty is None else terms.values + torch.where(anything, penalty, 0.0)
        mean = self.reduction == "mean" or self.kind == "batch"
        value = terms.mean() if mean else terms.values.sum()
        if penalty is not None:
            extra = penalty.mean() if mean else penalty.sum()
            value = value + torch.where(anything, extra, 0.0)
        own = self.regularizer()
        return value if own is None else value + torch.where(anything, own, 0.0)

    def _nothing(self, scores: Tensor) -> Tensor:
        """Zeros in the shape of the values, with a graph, for a batch or a reference set without rows."""
        if self.kind == "pair":
            return scores
        return scores.sum(dim=-1) if self.kind == "anchor" else scores.sum()

    def _tell_of_missing_pairs(self, relation: Relation) -> None:
        if is_transformed() or not self.tell_of_missing_pairs or self.proxies is not None:
            return
        kin, other = (bool(count(mask).any()) for mask in (relation.positives, relation.negatives))
        if not (kin and other):
            self.tell_of_missing_pairs = False
            missing = "no two items of one class" if not kin else "no two items of different classes"
            warnings.warn(
                f"{type(self).__name__} was given a batch with {missing}; such batches teach little or nothing. "
                "Use a sampler that draws several items of several classes, such as "
                'kinfold.samplers.create("spc", labels, batch_size=80, per_class=5).',
                stacklevel=4,
            )


def _nan_unless_finite(seen: View) -> Tensor:
    """Zero, and NaN where an embedding is NaN or infinite.

    Comparisons, hinges and miners turn NaN into False, and with it a loss into a number. Added to the value, this lets
    nobody take that number for a loss. It stays on the device: nothing waits for it.
    """
    total = seen.anchors.new_zeros(())
    for rows in (seen.anchors,) if seen.symmetric else (seen.anchors, seen.references):
        if rows.numel():
            lowest, highest = rows.detach().aminmax()
            total = total + lowest * 0.0 + highest * 0.0
    return total


def _scatter(weights: Tensor, tuples: Triplets | Quadruplets, seen: View) -> Tensor:
    """(2 or 3, T) weights of the sides of tuples, added up in the (B, R) matrix of pairs."""
    matrix = weights.new_zeros(seen.anchors.shape[0], seen.references.shape[0])
    sides = [(tuples.anchor, tuples.positive), (tuples.anchor, tuples.negative)]
    if isinstance(tuples, Quadruplets):
        if not seen.symmetric:
            raise ValueError(
                "the pair (n, l) of a quadruplet lies within the reference set: no anchor x reference weight"
            )
        sides.append((tuples.negative, tuples.fourth))
    for side, place in zip(weights, sides, strict=True):
        matrix.index_put_(place, side, accumulate=True)
    return matrix
