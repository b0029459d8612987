"""Robust: a pair loss, an uncertainty set and a grouping make a loss; its weights are the worst case in each group."""

from typing import Literal, TypeAlias

import torch
from torch import Tensor

from kinfold import registry
from kinfold.dro.top_k import TopK
from kinfold.dro.uncertainty import UncertaintySet
from kinfold.losses import Loss, ScoredPairs, Terms
from kinfold.losses.loss import Reduction
from kinfold.pairs.masks import count

Group: TypeAlias = Literal["batch", "sign", "anchor", "anchor-sign", "class"]


class Robust(Loss):
    """The largest weighted pair loss over an uncertainty set, in every group of pairs.

    - group "batch": all pairs together; "sign": kin and others apart, (F+ + F-) / 2; "anchor": each anchor's pairs,
      mean over the batch; "anchor-sign": each anchor's kin and others apart, mean over the batch of F+ + F-; "class":
      the pairs of all anchors of a class, mean over the classes present.
    - `uncertainty_set`: one set, or (positive set, negative set) where the signs are apart.
    - `drop_zero_losses`: pairs without a loss are left out before the weights are worked out.
    - `pseudo_pair` (anchor-sign): each group also holds a pair at the threshold of the pair loss, which is constant.
      With KL sets it turns lifted structure into multi-similarity.
    - `balanced` (sign, TopK): half of k for each sign, and no more than the rarer sign has.
    - `sample`: instead of the weighted sum, the mean of so many pairs of each group, drawn from its worst-case weights.

    The value is the robust value F, the gradient by a pair's loss is its weight p*. A `TopK(k)` counts pairs as the
    paper does, unordered: in a batch compared with itself every pair stands twice in the matrix, and 2k entries are
    taken.

    Qi et al., "A Simple and Effective Framework for Pairwise Deep Metric Learning", ECCV 2020.

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
        self.by_rows = self.kind == "anchor" and sample is None
        super().__init__(reduction)
        self.measure, self.normalize = inner.measure, inner.normalize
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
        kin, other = pairs.positives, pairs.negatives
        if self.drop_zero_losses:
            some = losses.detach() != 0
            kin, other = kin & some, other & some
        positive, negative = self._sets(pairs)
        if self.group == "batch":
            return Terms.over(self._value(positive, losses.flatten(), (kin | other).flatten()), 1)
        if self.group == "class":
            rows, exists = _rows_of_classes(pairs.labels)
            mask = (kin | other)[rows] & exists[:, :, None]
            values = self._value(positive, losses[rows].flatten(1), mask.flatten(1))
            return Terms.over(values.mean(), 1)
        if self.group == "anchor":
            return Terms.over(self._value(positive, losses, kin | other), losses.shape[0])
        if self.group == "anchor-sign":
            near, far = self._with_pseudo_pair(losses, kin, other)
            values = self._value(positive, *near) + self._value(negative, *far)
            return Terms.over(values, losses.shape[0])
        losses, kin, other = losses.flatten(), kin.flatten(), other.flatten()
        if self.balanced:
            limit = torch.minimum(count(kin, dim=0), count(other, dim=0))
            assert isinstance(positive, TopK)
            return Terms.over((positive.value(losses, kin, limit) + positive.value(losses, other, limit)) / 2, 1)
        return Terms.over((self._value(positive, losses, kin) + self._value(negative, losses, other)) / 2, 1)

    def get_extra_state(self) -> Tensor:
        return self.generator.get_state() if self.sample is not None else torch.zeros(0, dtype=torch.uint8)

    def set_extra_state(self, state: Tensor) -> None:
        if self.sample is not None:
            self.generator.set_state(state)

    def _sets(self, pairs: ScoredPairs) -> tuple[UncertaintySet, UncertaintySet]:
        """The two sets (or one twice) for this batch."""
        chosen = self.uncertainty_set
        positive, negative = chosen if isinstance(chosen, tuple) else (chosen, chosen)
        # in a batch compared with itself a pair stands at (i, j) and at (j, i)
        entries = 2.0 if pairs.symmetric and self.group in ("batch", "sign") else 1.0
        entries = entries / 2 if self.balanced else entries
        anchors = pairs.batch_size or pairs.scores.shape[0]
        return positive.for_batch(anchors, entries), negative.for_batch(anchors, entries)

    def _value(self, chosen: UncertaintySet, losses: Tensor, mask: Tensor) -> Tensor:
        if self.sample is None:
            return chosen.value(losses, mask)
        rows, weights = losses.reshape(-1, losses.shape[-1]), chosen.weights(losses, mask)
        running = weights.reshape(rows.shape).double().cumsum(dim=1)
        chance = torch.rand(len(rows), self.sample, generator=self.generator, device=self.generator.device).to(running)
        index = torch.searchsorted(running, chance * running[:, -1:], right=True).clamp(max=rows.shape[1] - 1)
        drawn = rows.gather(1, index).mean(dim=1)
        return torch.where(running[:, -1] > 0, drawn, 0.0).reshape(losses.shape[:-1])

    def _with_pseudo_pair(
        self, losses: Tensor, kin: Tensor, other: Tensor
    ) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """Losses and mask of both signs; with the pseudo pair in a last column, in groups that have a real one."""
        if not self.pseudo_pair:
            return (losses, kin), (losses, other)
        score = self.pair_loss.scoring.of_similarity(self.pair_loss.threshold)  # type: ignore[arg-type]
        at_threshold = torch.full_like(losses[:, :1], score)
        yes, no = torch.ones_like(kin[:, :1]), torch.zeros_like(kin[:, :1])
        sides = []
        for mask, signs in ((kin, (yes, no)), (other, (no, yes))):
            pseudo = self.pair_loss.terms(ScoredPairs(at_threshold, *signs)).values.detach()
            present = (count(mask) > 0)[:, None]
            sides.append((torch.cat([losses, pseudo], dim=1), torch.cat([mask, present], dim=1)))
        return sides[0], sides[1]


def _check(
    inner: object,
    sets: tuple[UncertaintySet, ...],
    group: str,
    pseudo_pair: bool,
    balanced: bool,
    sample: int | None,
) -> None:
    if not isinstance(inner, Loss) or inner.kind != "pair":
        raise ValueError(f"pair_loss must be a loss that works pair by pair, got {type(inner).__name__}")
    if not all(isinstance(each, UncertaintySet) for each in sets) or len(sets) > 2:
        raise ValueError("uncertainty_set must be a set of kinfold.dro, or a pair of them for kin and others")
    if group not in ("batch", "sign", "anchor", "anchor-sign", "class"):
        raise ValueError(f"group must be 'batch', 'sign', 'anchor', 'anchor-sign' or 'class', got {group!r}")
    if len(sets) == 2 and group not in ("sign", "anchor-sign"):
        raise ValueError(f"two sets need the signs apart: group must be 'sign' or 'anchor-sign', got {group!r}")
    if pseudo_pair and (group != "anchor-sign" or not hasattr(inner, "threshold")):
        raise ValueError("pseudo_pair must be used with group='anchor-sign' and a pair loss that has a threshold")
    if balanced and (group != "sign" or sample is not None or not isinstance(sets[0], TopK) or len(sets) == 2):
        raise ValueError("balanced must be used with group='sign' and one TopK set")
    if sample is not None and sample < 1:
        raise ValueError(f"sample must be at least 1, got {sample}")


def _rows_of_classes(labels: Tensor | None) -> tuple[Tensor, Tensor]:
    """(C, M) row numbers of the anchors of each class present, and which of them exist."""
    if labels is None:
        raise ValueError("group='class' needs labels: a relation does not say which class an anchor belongs to")
    _, code, sizes = torch.unique(labels.flatten(), return_inverse=True, return_counts=True)
    exists = torch.arange(int(sizes.max()), device=labels.device) < sizes[:, None]
    rows = torch.zeros(exists.shape, dtype=torch.int64, device=labels.device)
    rows[exists] = code.argsort(stable=True)
    return rows, exists
