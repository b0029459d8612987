"""Robust losses: a pair loss, weighted by the worst case over an uncertainty set in each group of pairs."""

from typing import Literal, TypeAlias

import torch
from torch import Tensor

from kinfold import registry
from kinfold.dro.robust_stream import (
    PairGroup,
    RobustStream,
    TemperedGroup,
    select_all,
    select_negatives,
    select_positives,
)
from kinfold.dro.stream import TopKSolver
from kinfold.dro.top_k import TopK
from kinfold.dro.uncertainty import UncertaintySet
from kinfold.losses import Loss, ScoredPairs, Terms, tiles
from kinfold.losses.engine import PairProgram
from kinfold.losses.loss import Reduction
from kinfold.pairs.class_rows import ClassRows
from kinfold.pairs.masks import count, narrow

Group: TypeAlias = Literal["batch", "sign", "anchor", "anchor-sign", "class"]


class Robust(Loss):
    """The largest weighted pair loss over an uncertainty set, in every group of pairs.

    The value is the robust value F. Its gradient by the loss of a pair is the weight p* of the pair. A `TopK(k)` counts
    unordered pairs, as the paper does: in a batch compared with itself every pair is in the matrix twice, and 2k
    entries are used.

    Qi et al., "A Simple and Effective Framework for Pairwise Deep Metric Learning", ECCV 2020.

    Args:
        pair_loss: A loss of kind "pair", or its registered name.
        uncertainty_set: One set, or (set of positives, set of negatives) for the groups "sign" and "anchor-sign".
        group: "batch": all pairs together. "sign": positives and negatives separately, (F+ + F-) / 2. "anchor": the
            pairs of each anchor, mean over the batch. "anchor-sign": positives and negatives of each anchor separately,
            mean over the batch of F+ + F-. "class": the pairs of all anchors of a class, mean over the classes in the
            batch.
        drop_zero_losses: Whether pairs with loss zero are left out before the weights are computed.
        pseudo_pair: Whether each group also has a constant pair at the threshold of the pair loss; needs "anchor-sign".
            With KL sets it turns lifted structure into multi-similarity.
        balanced: Whether positives and negatives get half of k each, and no more than the rarer of them has; needs
            "sign" and `TopK`.
        sample: If set, the value is the mean of so many pairs of each group, drawn with the worst-case weights, instead
            of the weighted sum.
        generator: Source of random numbers for `sample`; by default a new one with seed 0.
        reduction: "mean", "sum", or, for the groups "anchor" and "anchor-sign", "none".

    Examples:
        >>> loss = Robust("similarity-margin", TopK(2))
        >>> loss(torch.eye(4), torch.tensor([0, 0, 1, 1])).round(decimals=4)
        tensor(0.7000)
    """

    def __init__(
        self,
        pair_loss: Loss | str,
        uncertainty_set: UncertaintySet | tuple[UncertaintySet, UncertaintySet],
        group: Group = "batch",
        drop_zero_losses: bool = False,
        pseudo_pair: bool = False,
        balanced: bool = False,
        sample: int | None = None,
        generator: torch.Generator | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        inner = registry.create("losses", pair_loss) if isinstance(pair_loss, str) else pair_loss
        sets = uncertainty_set if isinstance(uncertainty_set, tuple) else (uncertainty_set,)
        _check(inner, sets, group, pseudo_pair, balanced, sample)
        self.kind = "anchor" if group.startswith("anchor") else "batch"
        # a set with a temperature for each group needs all groups at once, and so do draws
        is_separable = sample is None and all(getattr(each, "groups", None) is None for each in sets)
        self.supports_chunks = is_separable and (self.kind == "anchor" or group == "class")
        self.whole_classes = is_separable and group == "class"
        super().__init__(reduction)
        self.measure, self.normalize, self.distance = inner.measure, inner.normalize, inner.distance
        self._scoring = inner._scoring
        self.uses_labels = group == "class" or inner.uses_labels
        self.pair_loss: Loss = inner
        self.uncertainty_set = uncertainty_set
        self.group = group
        self.drop_zero_losses = drop_zero_losses
        self.pseudo_pair = pseudo_pair
        self.balanced = balanced
        self.sample = sample
        self.generator = torch.Generator().manual_seed(0) if generator is None else generator

    def terms(self, pairs: ScoredPairs) -> Terms:
        losses = self.pair_loss.terms(pairs).values
        positives, negatives = pairs.positives, pairs.negatives
        if self.drop_zero_losses:
            is_nonzero = losses.detach().bool()
            positives, negatives = narrow(positives, is_nonzero), narrow(negatives, is_nonzero)
        anchors = pairs.batch_size or pairs.scores.shape[0]
        positive_set, negative_set = self._resolve_sets(anchors, symmetric=pairs.symmetric)
        if self.group == "batch":
            value = self._reduce_group(positive_set, losses.flatten(), (positives | negatives).flatten())
            return Terms.over(value, 1)
        if self.group == "class":
            if pairs.labels is None:
                raise ValueError("group='class' needs labels: a relation does not say which class an anchor belongs to")
            classes = pairs.classes or ClassRows.from_labels(pairs.labels.flatten())
            mask = classes.split(positives | negatives) & classes.exists[:, :, None]
            values = self._reduce_group(positive_set, classes.split(losses).flatten(1), mask.flatten(1))
            return Terms.over(values.sum(), values.shape[0])
        if self.group == "anchor":
            values = self._reduce_group(positive_set, losses, positives | negatives)
            return Terms.over(values, torch.ones_like(values))
        if self.group == "anchor-sign":
            positive_group, negative_group = self._add_pseudo_pair(losses, positives, negatives)
            values = self._reduce_group(positive_set, *positive_group) + self._reduce_group(
                negative_set, *negative_group
            )
            return Terms.over(values, torch.ones_like(values))
        losses, positives, negatives = losses.flatten(), positives.flatten(), negatives.flatten()
        if self.balanced:
            limit = torch.minimum(count(positives, dim=0), count(negatives, dim=0))
            assert isinstance(positive_set, TopK)
            values = positive_set.value(losses, positives, limit) + positive_set.value(losses, negatives, limit)
        else:
            values = self._reduce_group(positive_set, losses, positives)
            values = values + self._reduce_group(negative_set, losses, negatives)
        return Terms.over(values / 2, 1)

    def compute(self, program: PairProgram, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        if 0 in program.source.shape:
            return program.compute(x, y)
        stream = RobustStream(program, self.pair_loss, self.drop_zero_losses)
        split = self._make_groups(stream)
        if split is None:
            return program.compute(x, y)
        groups, tempered = split
        stream.solve(x, y, groups)
        if self.balanced:
            positive, negative = (group.solver for group in groups)
            assert isinstance(positive, TopKSolver)
            assert isinstance(negative, TopKSolver)
            for solver in (positive, negative):
                solver.limit(min(positive.count, negative.count))
        return stream.reduce(x, y, groups, tempered), torch.ones((), dtype=torch.bool, device=x.device)

    def _make_groups(self, stream: RobustStream) -> tuple[list[PairGroup], list[TemperedGroup]] | None:
        """The groups that need a solver and those that do not; None if all losses are needed at once."""
        batch, copies = stream.outer.batch, stream.count_copies()
        if self.group not in ("batch", "sign") or self.sample is not None:
            return None
        sets = self._resolve_sets(batch.anchors.shape[0], symmetric=batch.symmetric)
        # A small batch is as fast without a stream if it has one tile or if nothing is to be solved. A stream reads
        # numbers of a device in every pass, for which the host would wait.
        is_small = batch.anchors.shape[0] * batch.references.shape[0] <= tiles.WHOLE_PAIRS
        is_solved = all(each.temperature is not None for each in sets)
        if is_small and (is_solved or batch.anchors.device.type != "cpu"):
            return None
        selections = [select_all] if self.group == "batch" else [select_positives, select_negatives]
        factor = 1.0 / len(selections)
        groups, tempered = [], []
        for chosen, selection in zip(sets, selections, strict=False):
            if chosen.temperature is not None:
                tempered.append(TemperedGroup(chosen.temperature, selection, factor))
                continue
            solver = chosen.make_solver(copies)
            if solver is None or (is_small and copies == 1 and not solver.needs_sample):
                return None
            groups.append(PairGroup(solver, selection, factor))
        return groups, tempered

    def get_extra_state(self) -> Tensor:
        return self.generator.get_state() if self.sample is not None else torch.zeros(0, dtype=torch.uint8)

    def set_extra_state(self, state: Tensor) -> None:
        if self.sample is not None:
            self.generator.set_state(state)

    def _resolve_sets(self, anchors: int, *, symmetric: bool) -> tuple[UncertaintySet, UncertaintySet]:
        """The sets of positives and negatives for a batch of so many anchors."""
        sets = self.uncertainty_set if isinstance(self.uncertainty_set, tuple) else (self.uncertainty_set,)
        # in a batch compared with itself a pair is in the matrix at (i, j) and at (j, i)
        entries = 2.0 if symmetric and self.group in ("batch", "sign") else 1.0
        entries = entries / 2 if self.balanced else entries
        return sets[0].for_batch(anchors, entries), sets[-1].for_batch(anchors, entries)

    def _reduce_group(self, uncertainty_set: UncertaintySet, losses: Tensor, mask: Tensor) -> Tensor:
        """The robust value of each group, or a random estimate of it from `sample` pairs."""
        if self.sample is None:
            return uncertainty_set.value(losses, mask)
        rows, weights = losses.reshape(-1, losses.shape[-1]), uncertainty_set.weights(losses, mask)
        cumulative = weights.reshape(rows.shape).double().cumsum(dim=1)
        chance = torch.rand(len(rows), self.sample, generator=self.generator, device=self.generator.device)
        level = chance.to(cumulative) * cumulative[:, -1:]
        index = torch.searchsorted(cumulative, level, right=True).clamp(max=rows.shape[1] - 1)
        drawn = rows.gather(1, index).mean(dim=1)
        return torch.where(cumulative[:, -1] > 0, drawn, 0.0).reshape(losses.shape[:-1])

    def _add_pseudo_pair(
        self, losses: Tensor, positives: Tensor, negatives: Tensor
    ) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """Losses and mask of both signs; groups that have a pair get the pseudo pair in a last column."""
        if not self.pseudo_pair:
            return (losses, positives), (losses, negatives)
        score = self.pair_loss.scoring.score_similarity(self.pair_loss.threshold)  # type: ignore[arg-type]
        at_threshold = torch.full_like(losses[:, :1], score)
        yes, no = torch.ones_like(positives[:, :1]), torch.zeros_like(positives[:, :1])
        groups = []
        for mask, signs in ((positives, (yes, no)), (negatives, (no, yes))):
            pseudo = self.pair_loss.terms(ScoredPairs(at_threshold, *signs)).values.detach()
            is_present = (count(mask) > 0)[:, None]
            groups.append((torch.cat([losses, pseudo], dim=1), torch.cat([mask, is_present], dim=1)))
        return groups[0], groups[1]


def _check(
    inner: object,
    sets: tuple[UncertaintySet, ...],
    group: str,
    pseudo_pair: bool,
    balanced: bool,
    sample: int | None,
) -> None:
    if not isinstance(inner, Loss) or inner.kind != "pair":
        raise ValueError(f"pair_loss must be a loss of kind 'pair', got {type(inner).__name__}")
    if not all(isinstance(each, UncertaintySet) for each in sets) or len(sets) > 2:
        raise ValueError("uncertainty_set must be a set of kinfold.dro, or a tuple (positives, negatives) of two sets")
    if group not in ("batch", "sign", "anchor", "anchor-sign", "class"):
        raise ValueError(f"group must be 'batch', 'sign', 'anchor', 'anchor-sign' or 'class', got {group!r}")
    if len(sets) == 2 and group not in ("sign", "anchor-sign"):
        raise ValueError(f"two sets need separate signs: group must be 'sign' or 'anchor-sign', got {group!r}")
    if pseudo_pair and (group != "anchor-sign" or not hasattr(inner, "threshold")):
        raise ValueError("pseudo_pair must be used with group='anchor-sign' and a pair loss that has a threshold")
    if balanced and (group != "sign" or sample is not None or not isinstance(sets[0], TopK) or len(sets) == 2):
        raise ValueError("balanced must be used with group='sign' and one TopK set")
    if sample is not None and sample < 1:
        raise ValueError(f"sample must be at least 1, got {sample}")
