"""Losses, miners and samplers of pytorch-metric-learning as those of kinfold."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kinfold.devices import keep_global_generators, seed_global_generators
from kinfold.losses import Loss
from kinfold.miners import Miner
from kinfold.optional import import_optional
from kinfold.pairs import Labels, PairBatch, Quadruplets, Relation, Triplets, full_precision, make_pair_batch
from kinfold.pairs.index_tuples import IndexTensors, Tuples, read_tuples
from kinfold.samplers import Sampler
from kinfold.samplers.checks import check_integer
from kinfold.samplers.class_index import ClassIndex
from kinfold.seeding import derive_batch_generator

try:
    from pytorch_metric_learning.losses import BaseMetricLossFunction
    from pytorch_metric_learning.miners import BaseMiner
    from pytorch_metric_learning.samplers import MPerClassSampler
    from pytorch_metric_learning.utils import common_functions
except ImportError:
    import_optional("pytorch_metric_learning", "pytorch-metric-learning", "pml", "this adapter")  # raises
    raise

_LARGEST_SEED = 2**31 - 1


class PMLLoss(Loss):
    """A loss of pytorch-metric-learning as a loss of kinfold.

    It is called as losses of kinfold are, takes the tuples of miners of both libraries, trains in recipes and benches,
    and computes half precision in float32. Its reducer decides what the mean is. `ids` and a boolean `relation=` are
    passed to it as lists of pairs. It has no pair weights, does not work in row chunks, and keeps the other properties
    of the loss; docs/peer-losses.md lists what holds for each.

    Args:
        loss: A loss of pytorch-metric-learning.
        generator: Source of random numbers for losses that draw; by default a new one with seed 0. The global generator
            is not touched.

    Raises:
        ValueError: `loss` is no single loss of pytorch-metric-learning.

    Examples:
        >>> from pytorch_metric_learning import losses
        >>> PMLLoss(losses.CircleLoss())(torch.eye(4), torch.tensor([0, 0, 1, 1])).shape
        torch.Size([])
    """

    kind = "batch"

    def __init__(self, loss: Any, generator: torch.Generator | None = None) -> None:
        super().__init__()
        if not isinstance(loss, BaseMetricLossFunction):
            raise ValueError(
                f"{type(loss).__name__} is no single loss of pytorch-metric-learning: CrossBatchMemory is [memory] or "
                "kinfold.pairs.CrossBatchMemory here, SelfSupervisedLoss is ref_embeddings=, MultipleLosses is a sum"
            )
        self.loss = loss
        self.generator = torch.Generator().manual_seed(0) if generator is None else generator
        # W, proxies or fc: a matrix of class vectors, with which items are compared instead of with each other
        self.has_class_vectors = any(parameter.dim() >= 2 for parameter in loss.parameters())

    @property
    def has_pair_weights(self) -> bool:
        return False

    @property
    def takes_sample_weight(self) -> bool:
        return False

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
        """Return the loss of a batch; arguments as in `Loss.forward`, without `sample_weight`."""
        if sample_weight is not None:
            raise ValueError(f"{type(self.loss).__name__} takes no sample_weight; its reducer may weight classes")
        if labels is not None and relation is not None:
            raise ValueError("pass labels or relation=, not both")
        with full_precision(embeddings):
            batch = make_pair_batch(
                embeddings,
                labels,
                relation=relation,
                ref_embeddings=ref_embeddings,
                ref_labels=ref_labels,
                ids=ids,
                ref_ids=ref_ids,
            )
            indices = None if tuples is None else _list_indices(tuples, batch)
            if indices is None and (relation is not None or ids is not None) and not self.has_class_vectors:
                if batch.relation.degree is not None:
                    raise ValueError(f"{type(self.loss).__name__} needs a boolean relation")
                indices = _list_pairs(batch.relation)
            references = {} if batch.symmetric else _pass_references(batch)
            with _draw_from(self.generator, embeddings.device):
                value = self.loss(batch.anchors, batch.labels, indices, **references)
            if not isinstance(value, Tensor):
                raise ValueError(
                    f"{type(self.loss).__name__} returned a {type(value).__name__}: give it a reducer that returns a "
                    "number, not DoNothingReducer"
                )
            # a NaN in the input reaches the value, as in all losses of kinfold
            return value + (batch.anchors.detach() * 0.0).sum()

    def get_extra_state(self) -> Tensor:
        return self.generator.get_state()

    def set_extra_state(self, state: Tensor) -> None:
        self.generator.set_state(state)


class PMLMiner(Miner):
    """A miner of pytorch-metric-learning as a miner of kinfold.

    Pairs that it lists twice count once. Pairs of an item with itself, by `ids`, are left out.

    Args:
        miner: A miner of pytorch-metric-learning.
        generator: Source of random numbers for miners that draw; by default a new one with seed 0. The global generator
            is not touched.

    Raises:
        ValueError: `miner` is no miner of pytorch-metric-learning.

    Examples:
        >>> from pytorch_metric_learning import miners
        >>> PMLMiner(miners.BatchHardMiner())(torch.eye(4), torch.tensor([0, 0, 1, 1])).positive
        tensor([1, 0, 3, 2])
    """

    supports_chunks = False

    def __init__(self, miner: Any, generator: torch.Generator | None = None) -> None:
        super().__init__(generator)
        if not isinstance(miner, BaseMiner):
            raise ValueError(f"{type(miner).__name__} is no miner of pytorch-metric-learning")
        self.miner = miner

    def select(self, batch: PairBatch) -> Relation | Triplets:
        """Call the miner with embeddings that are not normalized, and convert its result."""
        if batch.labels is None:
            raise ValueError(f"{type(self.miner).__name__} needs labels and cannot use relation=")
        references = {} if batch.symmetric else _pass_references(batch)
        with _draw_from(self.generator, batch.anchors.device):
            indices = self.miner(batch.anchors, batch.labels, **references)
        indices = [index.to(batch.anchors.device, torch.int64) for index in indices]
        same_item = batch.same_item
        if len(indices) == 3:
            anchor, positive, negative = indices
            valid = torch.ones_like(anchor, dtype=torch.bool)
            if same_item is not None:
                valid = ~(same_item[anchor, positive] | same_item[anchor, negative])
            return Triplets(anchor, positive, negative, valid)
        shape = (batch.anchors.shape[0], batch.references.shape[0])
        positives, negatives = (
            torch.zeros(shape, dtype=torch.bool, device=batch.anchors.device).index_put_(
                tuple(pair), torch.ones((), dtype=torch.bool, device=batch.anchors.device)
            )
            for pair in (indices[:2], indices[2:])
        )
        return Relation.without(positives, negatives, same_item)


class PMLSampler(Sampler):
    """`MPerClassSampler` of pytorch-metric-learning as a batch sampler of kinfold; `spc` is the one of kinfold.

    It draws from a generator of seed and epoch instead of the global one of NumPy. The other samplers of
    pytorch-metric-learning do not fit: HierarchicalSampler needs classes of classes, FixedSetOfTriplets and
    TuplesToWeightsSampler fix the items from outside of the training.

    Args:
        labels: Class of each item, (N,): integers or strings.
        batch_size: Items per batch, over all processes. A multiple of `m`.
        m: Items per class in a batch.
        batches: Batches per epoch; by default N // batch_size, at least 1.
        seed: Seed of all draws, together with the epoch.
        rank, world_size: Process rank and world size; those of torch.distributed if left out.

    Examples:
        >>> sampler = PMLSampler([0, 0, 1, 1], batch_size=4, m=2)
        >>> [sorted(batch) for batch in sampler]
        [[0, 1, 2, 3]]
    """

    def __init__(
        self,
        labels: Labels,
        batch_size: int,
        m: int = 4,
        batches: int | None = None,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        classes = ClassIndex.from_labels(labels)
        check_integer(1, batch_size=batch_size, m=m)
        items = classes.count_items()
        if batch_size % m or batch_size > m * len(classes):
            raise ValueError(
                f"MPerClassSampler needs a batch_size that is a multiple of m={m} and at most m times the "
                f"{len(classes)} classes, got {batch_size}"
            )
        batches = max(1, items // batch_size) if batches is None else batches
        super().__init__(classes, batch_size, batches, seed, rank, world_size)
        self.per_class = m
        codes = np.empty(items, dtype=np.int64)
        codes[classes.items.numpy()] = np.repeat(np.arange(len(classes)), classes.sizes.numpy())
        self.inner = MPerClassSampler(codes, m, batch_size, length_before_new_iter=batches * batch_size)

    def plan(self, epoch: int) -> Tensor:
        random = np.random.RandomState(derive_batch_generator(self.seed, epoch).initial_seed() % 2**32)
        # its order of classes is shuffled in place: start from the same one in every epoch
        self.inner.labels = sorted(self.inner.labels)
        before = common_functions.NUMPY_RANDOM
        common_functions.NUMPY_RANDOM = random
        try:
            items = [int(item) for item in self.inner]
        finally:
            common_functions.NUMPY_RANDOM = before
        return torch.tensor(items, dtype=torch.int64).view(self.batches, self.batch_size)


@contextmanager
def _draw_from(generator: torch.Generator, device: torch.device) -> Iterator[None]:
    """Make the global generators a function of `generator` inside the block, and restore them at its end."""
    seed = int(torch.randint(_LARGEST_SEED, (), generator=generator, device=generator.device))
    with keep_global_generators(device):
        seed_global_generators(seed, device)
        yield


def _pass_references(batch: PairBatch) -> dict[str, Tensor | None]:
    # a copy: if both sets of labels were one tensor, the pairs (i, i) would be left out
    labels = None if batch.ref_labels is None else batch.ref_labels.clone()
    return {"ref_emb": batch.references, "ref_labels": labels}


def _list_indices(tuples: Tuples | IndexTensors, batch: PairBatch) -> tuple[Tensor, ...]:
    """Return tuples of either library as index tensors."""
    if not isinstance(tuples, Relation | Triplets | Quadruplets) and len(tuples) == 4:
        return tuple(tuples)  # duplicates are the business of the loss
    selected = read_tuples(tuples, (batch.anchors.shape[0], batch.references.shape[0]), batch.anchors.device)
    if isinstance(selected, Quadruplets):
        raise ValueError("losses of pytorch-metric-learning take no quadruplets")
    if isinstance(selected, Relation):
        return _list_pairs(selected)
    return tuple(index[selected.valid] for index in (selected.anchor, selected.positive, selected.negative))


def _list_pairs(relation: Relation) -> tuple[Tensor, ...]:
    return (*torch.where(relation.positives), *torch.where(relation.negatives))
