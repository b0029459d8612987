"""Losses with class vectors, in chunks of classes if there are many, and with a share of them if that is asked for."""

from typing import Any

import torch
from torch import Tensor, nn

from kinfold.losses import tiles
from kinfold.losses.class_logits import ClassLogits, ClassVectors, TargetClasses
from kinfold.losses.class_sampling import draw_classes, select_rows
from kinfold.losses.class_shards import ClassShard
from kinfold.losses.class_terms import compute_class_terms
from kinfold.losses.engine import PairProgram
from kinfold.losses.loss import Loss, Reduction
from kinfold.losses.proxies import check_class_range, make_proxy_batch
from kinfold.losses.target_logits import TargetLogits
from kinfold.losses.terms import ScoredPairs, Terms
from kinfold.pairs import Labels, PairBatch, full_precision, normalize
from kinfold.pairs.index_tuples import IndexTensors, Tuples
from kinfold.pairs.labels import encode
from kinfold.pairs.masks import list_columns
from kinfold.pairs.measures import measure_lengths
from kinfold.pairs.pair_batch import check_embeddings
from kinfold.pairs.transforms import is_transformed

# Class vectors from which a softmax loss is computed in chunks of classes. Fewer are computed in rows of all classes,
# with three products instead of four.
MANY_VECTORS = 2**14


class ProxyLoss(Loss):
    """Base class of losses that compare samples with class vectors.

    A softmax loss implements `values`, which computes the loss of each sample from the logits of its classes and the
    log sum exp of all others, and `logits` if they are more than scaled scores. A loss with one term for each class
    sets `proxies_are_anchors` and implements `terms` and `counts`. With many classes both are computed in chunks of
    classes: no tensor of samples x classes is held.

    With `class_share` below 1, a batch in training mode is compared with the classes that occur in it and a random
    share of the others. The value is that of a loss with these classes only. The gradient of `proxies` and `bias` is
    sparse: see `kinfold.losses.update_rows`. The state of the generator is part of `state_dict`.

    Args:
        reduction: "mean", "sum" or "none".
        class_share: Share of the classes outside the batch that a batch is compared with, above 0 and at most 1.
        generator: Its seed is that of the drawn classes.

    Attributes:
        generator: Source of random numbers for the classes; exists if `class_share` is below 1.
        logit_scale: Factor of the scores.
        bias: Added to the score of each class, (C,), or None.
        needs_negatives: Whether a sample that belongs to every class is left out of the mean.
        scales_by_length: Whether the scores are multiplied by the lengths of the embeddings; needs `uses_lengths`.
    """

    fixed_measure = "it compares samples with class vectors by their products"
    logit_scale: float = 1.0
    bias: nn.Parameter | None
    needs_negatives: bool = False
    scales_by_length: bool = False
    generator: torch.Generator
    generator_state: Tensor

    def __init__(
        self, reduction: Reduction = "mean", class_share: float = 1.0, generator: torch.Generator | None = None
    ) -> None:
        super().__init__(reduction)
        if not 0 < class_share <= 1:
            raise ValueError(f"class_share must be above 0 and at most 1, got {class_share}; 1 uses all classes")
        self.register_parameter("bias", None)
        self.class_share = class_share
        self._uses_all = class_share == 1
        self._shard: ClassShard | None = None
        if class_share < 1:
            self.generator = torch.Generator().manual_seed(0 if generator is None else generator.initial_seed())
            self.register_buffer("generator_state", self.generator.get_state())
            self.register_state_dict_pre_hook(_save_generator)  # type: ignore[no-untyped-call]
            self.register_load_state_dict_post_hook(_load_generator)  # type: ignore[no-untyped-call]

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
        options: dict[str, Any] = {
            "relation": relation,
            "ref_embeddings": ref_embeddings,
            "ref_labels": ref_labels,
            "ids": ids,
            "ref_ids": ref_ids,
            "tuples": tuples,
            "sample_weight": sample_weight,
        }
        has_labels = labels is not None and relation is None
        if self._uses_all or not self.training or not (has_labels or self._fits(relation)):
            return super().forward(embeddings, labels, **options)
        # the number of classes depends on the labels, so this is not compiled
        from kinfold.losses.uncompiled import run_uncompiled

        value: Tensor = run_uncompiled(self._forward_sampled, embeddings, labels, options)
        return value

    def _forward_sampled(self, embeddings: Tensor, labels: Labels | None, options: dict[str, Any]) -> Tensor:
        """Compute the loss with the parameters of the drawn classes in place of those of all classes."""
        assert self.proxies is not None
        relation = options["relation"]
        if relation is None:
            assert labels is not None
            (codes,) = encode(labels, device=embeddings.device)
            check_class_range(codes, self.num_classes)
            present = torch.unique(codes)
        else:
            present = relation.any(dim=0).nonzero().squeeze(1).to(embeddings.device)
        classes = draw_classes(present, self.num_classes, self.class_share, self.generator)
        rows, shard = classes, self._shard
        if shard is not None:  # the drawn classes of this process
            low, high = torch.searchsorted(classes, classes.new_tensor([shard.rows.start, shard.rows.stop])).tolist()
            rows, self._shard = classes[low:high] - shard.first, ClassShard(shard.world, low, len(classes))
        if relation is None:
            labels = torch.searchsorted(classes, codes)
        else:
            options = {**options, "relation": relation[:, classes.to(relation.device)]}
        stored = {"proxies": self.proxies, "bias": self.bias}
        used = {name: select_rows(value, rows) for name, value in stored.items() if value is not None}
        self._uses_all = True
        try:
            value: Tensor = torch.func.functional_call(self, used, (embeddings, labels), options)
        finally:
            self._uses_all, self._shard = False, shard
        return value

    def _fits(self, relation: Tensor | None) -> bool:
        """Whether classes can be drawn from a relation; errors are raised where it is read."""
        assert self.proxies is not None
        return relation is not None and relation.dim() == 2 and relation.shape[1] == len(self.proxies)

    @property
    def num_classes(self) -> int:
        """Number of classes, those of other processes included."""
        assert self.proxies is not None
        return len(self.proxies) if self._shard is None else self._shard.total

    def shard_classes(self, world: Any = None) -> None:
        """Keep the class vectors of a part of the classes only; every process has another part.

        Call it on every process, before the optimizer is made. All processes then call the loss with the same
        embeddings and labels, those of the global batch, and get the same value and the same gradient of the
        embeddings, as from a single process. The gradient of the class vectors of a process is complete: it is not
        averaged. `state_dict` has the vectors of all classes and must be called on all processes;
        `load_state_dict` takes the part of this process. So the number of processes may change in between.

        Args:
            world: The processes, a `kinfold.distributed.World`; by default those of torch.distributed.

        Raises:
            ValueError: The classes are sharded already, or there are fewer of them than processes.
        """
        from kinfold.distributed import World

        world = World.current() if world is None else world
        if self._shard is not None:
            raise ValueError("the classes of this loss are sharded already")
        if self.num_classes < world.size:
            raise ValueError(f"{self.num_classes} classes cannot be sharded over {world.size} processes")
        shard = ClassShard.split(self.num_classes, world)
        for name in ("proxies", "bias"):
            parameter = getattr(self, name)
            if parameter is not None:
                part = nn.Parameter(parameter.detach()[shard.rows].clone(), parameter.requires_grad)
                part.class_shard = shard  # type: ignore[attr-defined]  # World.average_gradients leaves it out
                setattr(self, name, part)
        self._shard = shard
        self.register_state_dict_post_hook(_gather_shards)  # type: ignore[no-untyped-call]
        self.register_load_state_dict_pre_hook(_take_shard)  # type: ignore[no-untyped-call]

    def _make_batch(
        self, embeddings: Tensor, labels: Labels | None, relation: Tensor | None, *others: Any
    ) -> PairBatch:
        if self._shard is None:
            return super()._make_batch(embeddings, labels, relation, *others)
        assert self.proxies is not None
        if any(other is not None for other in others):
            raise ValueError(f"{type(self).__name__} compares samples with its own proxies: it takes labels only")
        return make_proxy_batch(
            self.proxies, embeddings, labels, relation, as_anchors=self.proxies_are_anchors, shard=self._shard
        )

    def sum_over_shards(self, value: Tensor) -> Tensor:
        """Sum a term of the class vectors of this process over all processes."""
        return value if self._shard is None else self._shard.add_up(value)

    def logits(self, scores: Tensor) -> Tensor:
        """Compute the logit of each class, (B, c).

        Args:
            scores: Scaled scores of some classes, with the bias: (B, c), or (B, c, K) with K vectors per class.
        """
        return scores

    def values(self, targets: TargetLogits) -> Tensor:
        """Compute the loss of every sample, (B,); implemented by each softmax loss."""
        raise NotImplementedError(f"{type(self).__name__} defines neither values(self, targets) nor terms(self, pairs)")

    def get_logits(self, embeddings: Tensor) -> Tensor:
        """Return the logit of each class for each sample, without margins: the largest one is the predicted class.

        Args:
            embeddings: (B, d), of any length: normalized if the loss does so.

        Returns:
            (B, num_classes), differentiable.

        Examples:
            >>> from kinfold.losses import create
            >>> loss = create("cosface", num_classes=3, dim=3, scale=10.0)
            >>> loss.proxies.data = torch.eye(3)
            >>> loss.get_logits(torch.tensor([[0.0, 2.0, 0.0]])).detach()
            tensor([[ 0., 10.,  0.]])
        """
        assert self.proxies is not None
        with full_precision(embeddings):
            x = check_embeddings(embeddings, "embeddings")
            y = check_embeddings(self.proxies.flatten(0, -2), "proxies")
            if x.shape[1] != y.shape[1]:
                raise ValueError(f"embeddings have {x.shape[1]} dimensions but the proxies {y.shape[1]}")
            dtype = torch.promote_types(x.dtype, y.dtype)
            x, y = x.to(dtype), y.to(dtype)
            if self.normalize:
                x, y = x if self.scales_by_length else normalize(x), normalize(y)
            scores = self.logit_scale * self._by_class(x @ y.T, dim=1)
            return self.logits(scores if self.bias is None else scores + self.bias.to(dtype))

    def terms(self, pairs: ScoredPairs) -> Terms:
        scores = self.logit_scale * self._by_class(pairs.scores, dim=1)
        if self.bias is not None:
            scores = scores + self.bias.to(scores.dtype)
        if self.scales_by_length:
            assert pairs.lengths is not None
            scores = scores * pairs.lengths.reshape(-1, *[1] * (scores.dim() - 1))

        def measure(index: Tensor) -> Tensor:
            assert pairs.anchors is not None
            assert pairs.references is not None
            return _measure_distances(pairs.anchors, self._by_class(pairs.references)[index])

        return self._average(
            TargetLogits.from_matrix(self.logits(scores), pairs, measure), scores.shape[1], pairs.anchor_weights
        )

    def compute(self, program: PairProgram, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        if not self._has_many_classes(program.batch):
            return super().compute(program, x, y)
        terms = self._compute_chunks(program, x, y, unit=False)
        mean = terms.mean() if self.reduction == "mean" else terms.values.sum()
        return mean, terms.counts.sum() > 0

    def _terms(self, batch: PairBatch, tuples: Tuples | None) -> Terms:
        program = PairProgram(self, batch, batch.source, self._call_terms)
        if is_transformed() or not self._has_many_classes(batch):
            # lengths have a gradient of their own, which tiles do not pass on: plain operations, or chunks of classes
            whole = self.uses_lengths and batch.references.shape[0]
            return (
                program.evaluate_whole(*self.scoring.make_operands(batch)) if whole else super()._terms(batch, tuples)
            )
        # class vectors are normalized chunk by chunk
        x, y = batch.anchors, batch.references
        if self.normalize and not self.scales_by_length:
            x, y = (x, normalize(y)) if self.proxies_are_anchors else (normalize(x), y)
        return self._compute_chunks(program, x, y, unit=self.normalize)

    def _has_many_classes(self, batch: PairBatch) -> bool:
        if self._shard is not None:
            if self.reduction == "none" and self.proxies_are_anchors:
                raise ValueError("reduction='none' has one value for each class: it needs all classes in one process")
            return True
        rows, columns = batch.anchors.shape[0], batch.references.shape[0]
        if rows * columns <= tiles.WHOLE_PAIRS:
            return False
        if self.proxies_are_anchors:
            return self.reduction != "none"
        return columns >= MANY_VECTORS or self.uses_lengths  # lengths are no input of tiles

    def _compute_chunks(self, program: PairProgram, x: Tensor, y: Tensor, *, unit: bool) -> Terms:
        """Compute the terms in chunks of classes; with `unit`, the class vectors are still to be normalized."""
        if self.proxies_are_anchors:
            return compute_class_terms(program, x, y, unit=unit, shard=self._shard)
        classes = ClassVectors(self._by_class(y), None if self.bias is None else self.bias.to(y.dtype))
        labels = program.batch.labels
        if labels is None:
            targets = TargetClasses(*list_columns(program.source.tile().positives))
        else:
            index, number = labels[:, None], len(classes.vectors)
            is_here = None if self._shard is None else (index >= 0) & (index < number)
            index = index if is_here is None else index.clamp(0, max(0, number - 1))
            targets = TargetClasses(index, torch.ones_like(index, dtype=torch.bool), is_here)
        logits = ClassLogits(self.logits, self.logit_scale, unit, self._shard)
        negatives, target_logits = logits.compute(x, classes, targets)

        def measure() -> Tensor:
            if len(classes.vectors) == 0:
                return self.sum_over_shards(torch.zeros_like(target_logits))
            distances = _measure_distances(x, logits.make_operand(classes.select(targets.index)))
            return self.sum_over_shards(torch.where(targets.local, distances, 0.0))

        lengths = measure_lengths(program.batch.anchors) if self.uses_lengths else None
        known = TargetLogits(targets, target_logits, negatives, measure, lengths)
        return self._average(known, self.num_classes, program.batch.weights)

    def _average(self, targets: TargetLogits, num_classes: int, weights: Tensor | None) -> Terms:
        """Return terms whose mean is over the samples that have a class."""
        values, number = self.values(targets), targets.classes.exists.sum(dim=1)
        is_used = number > 0
        if self.needs_negatives:
            is_used = is_used & (number < num_classes)
        terms = Terms.over(torch.where(is_used, values, 0.0), is_used)
        return terms if weights is None else terms.weight_by(weights)

    def _by_class(self, rows: Tensor, dim: int = 0) -> Tensor:
        """Split a dimension of all class vectors, C K, into classes and their vectors, (C, K)."""
        assert self.proxies is not None
        if self.proxies.dim() == 2:
            return rows
        return rows.reshape(*rows.shape[:dim], -1, self.proxies.shape[1], *rows.shape[dim + 1 :])


def _save_generator(loss: ProxyLoss, *_: Any) -> None:
    loss.generator_state = loss.generator.get_state().to(loss.generator_state.device)


def _load_generator(loss: ProxyLoss, *_: Any) -> None:
    loss.generator.set_state(loss.generator_state.cpu())


def _gather_shards(loss: ProxyLoss, state: dict[str, Any], prefix: str, _: Any) -> None:
    shard = loss._shard
    assert shard is not None
    for name in ("proxies", "bias"):
        if prefix + name in state:
            state[prefix + name] = shard.gather(state[prefix + name])


def _take_shard(loss: ProxyLoss, state: dict[str, Any], prefix: str, *_: Any) -> None:
    shard = loss._shard
    assert shard is not None
    for name in ("proxies", "bias"):
        if prefix + name in state:
            state[prefix + name] = state[prefix + name][shard.rows]


@torch.no_grad()
def _measure_distances(x: Tensor, y: Tensor) -> Tensor:
    """Squared distances (B, W) of samples (B, d) to vectors (B, W, d), or to the nearest of K, (B, W, K, d)."""
    squared = (x.reshape(x.shape[0], *[1] * (y.dim() - 2), x.shape[1]) - y).square().sum(dim=-1)
    return squared if y.dim() == 3 else squared.amin(dim=-1)
