"""Losses, miners and samplers of kinfold as those of pytorch-metric-learning."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Sampler as TorchSampler

from kinfold import registry
from kinfold.compat.class_logits import compute_class_logits
from kinfold.losses import Loss
from kinfold.losses.loss import Reduction
from kinfold.miners import Miner
from kinfold.optional import import_optional
from kinfold.pairs import Relation, Triplets
from kinfold.pairs.index_tuples import Tuples
from kinfold.samplers import Sampler

try:
    from pytorch_metric_learning.losses import BaseMetricLossFunction
    from pytorch_metric_learning.miners import BaseMiner
    from pytorch_metric_learning.reducers import DivisorReducer
    from pytorch_metric_learning.utils import loss_and_miner_utils
except ImportError:
    import_optional("pytorch_metric_learning", "pytorch-metric-learning", "pml", "this adapter")  # raises
    raise

IndicesTuple = Sequence[Tensor]


class LossForPML(BaseMetricLossFunction):
    """A loss of kinfold with the interface of pytorch-metric-learning.

    `forward(embeddings, labels, indices_tuple=None, ref_emb=None, ref_labels=None)`. The value without a reducer is
    that of the loss: `reduction=` of kinfold decides. With a reducer, the loss returns its single values, which the
    reducer gets by pair (losses of kind "pair"), by triplet (triplet losses, if `indices_tuple` holds triplets), or by
    anchor.

    | reducer | |
    |---|---|
    | MeanReducer, SumReducer, ThresholdReducer, AvgNonZeroReducer, ClassWeightedReducer, DoNothingReducer | work |
    | PerAnchorReducer | works, except on triplets and reference sets, which it does not accept from any loss |
    | MultipleReducers | keys are those of `sub_loss_names()` |
    | DivisorReducer | refused: the divisor comes from the loss, and those of kinfold have none; use `reduction=` |
    | any, on a loss of kind "batch", proxy-anchor or a robust loss | refused: there is one value for the batch |

    `indices_tuple` may hold triplets or pairs. A loss that needs all pairs of an anchor uses each pair of the triplets
    once. A loss with class vectors weights each item by how often it occurs, as losses of pytorch-metric-learning do.

    Args:
        loss: A loss of kinfold, or its registered name if it needs no options.
        reducer: A reducer of pytorch-metric-learning; None keeps the reduction of the loss.
        embedding_regularizer: A regularizer of pytorch-metric-learning for embeddings.
        embedding_reg_weight: Weight of its value.

    Raises:
        ValueError: The reducer does not fit the loss.

    Examples:
        >>> from pytorch_metric_learning import miners
        >>> loss = LossForPML("multi-similarity")
        >>> x, y = torch.eye(4), torch.tensor([0, 0, 1, 1])
        >>> loss(x, y, miners.MultiSimilarityMiner()(x, y)).shape
        torch.Size([])
    """

    def __init__(
        self,
        loss: Loss | str,
        reducer: Any = None,
        embedding_regularizer: Any = None,
        embedding_reg_weight: float = 1.0,
    ) -> None:
        inner: Loss = registry.create("losses", loss) if isinstance(loss, str) else loss
        if not isinstance(inner, Loss):
            raise ValueError(
                f"LossForPML takes a kinfold.losses.Loss, got {type(inner).__name__}; pass a miner of kinfold to "
                "MinerForPML, and its result as indices_tuple"
            )
        if reducer is not None:
            _check_reducer(inner, reducer)
        names = ["pos_loss", "neg_loss"] if reducer is not None and inner.kind == "pair" else ["loss"]
        if reducer is not None and inner.regularizer() is not None:
            names.append("regularizer_loss")
        # asked for by the constructor of the base class, before modules can be stored
        object.__setattr__(self, "_names", names)
        super().__init__(
            reducer=reducer, embedding_regularizer=embedding_regularizer, embedding_reg_weight=embedding_reg_weight
        )
        self.loss = inner
        self.splits_values = reducer is not None

    def get_logits(self, embeddings: Tensor) -> Tensor:
        """Return the scores of all classes (B, C), without the margin; see `compute_class_logits`.

        Raises:
            ValueError: The loss has no class vectors.
        """
        return compute_class_logits(self.loss, embeddings)

    def compute_loss(
        self,
        embeddings: Tensor,
        labels: Tensor | None,
        indices_tuple: IndicesTuple | None,
        ref_emb: Tensor,
        ref_labels: Tensor | None,
    ) -> dict[str, dict[str, Any]]:
        """Return single values with their indices, or the value of the batch; called by `forward`."""
        has_references = ref_emb is not embeddings
        references = {"ref_embeddings": ref_emb, "ref_labels": ref_labels} if has_references else {}
        if self.loss.proxies is not None:
            losses = self._compute_proxy_losses(embeddings, labels, indices_tuple, references)
        elif not self.splits_values:
            options = self._read_indices(embeddings, labels, indices_tuple, ref_emb, references)
            losses = {"loss": _already_reduced(self.loss(embeddings, **options))}
        elif self.loss.kind == "pair":
            losses = self._compute_pair_losses(embeddings, labels, indices_tuple, references)
        else:
            options = self._read_indices(embeddings, labels, indices_tuple, ref_emb, references)
            losses = self._compute_anchor_losses(embeddings, options)
        regularizer = self.loss.regularizer() if "regularizer_loss" in self._names else None
        if regularizer is not None:
            losses["regularizer_loss"] = _already_reduced(regularizer)
        return losses

    def _sub_loss_names(self) -> list[str]:
        return [*self._names]

    def _read_indices(
        self,
        embeddings: Tensor,
        labels: Tensor | None,
        indices_tuple: IndicesTuple | None,
        ref_emb: Tensor,
        references: dict[str, Any],
    ) -> dict[str, Any]:
        """Return the arguments of the loss for labels, tuples and references."""
        if indices_tuple is None:
            return {"labels": labels, **references}
        tuples: IndicesTuple | Tuples = indices_tuple
        if len(indices_tuple) == 3 and self.loss.kind != "pair" and type(self.loss).tuple_terms is Loss.tuple_terms:
            anchor, positive, negative = indices_tuple
            shape = (embeddings.shape[0], ref_emb.shape[0])
            tuples = Relation(*(_mask_pairs(anchor, other, shape, embeddings) for other in (positive, negative)))
        if labels is not None:
            return {"labels": labels, "tuples": tuples, **references}
        # the tuples alone say which pairs are positive
        shape = (embeddings.shape[0], ref_emb.shape[0])
        relation = _mask_pairs(indices_tuple[0], indices_tuple[1], shape, embeddings)
        return {"relation": relation, "tuples": tuples, **{k: v for k, v in references.items() if v is not None}}

    def _compute_pair_losses(
        self,
        embeddings: Tensor,
        labels: Tensor | None,
        indices_tuple: IndicesTuple | None,
        references: dict[str, Any],
    ) -> dict[str, dict[str, Any]]:
        if labels is None:
            raise ValueError("labels are needed to take the values of single pairs: pass labels, or no reducer")
        with _single_values(self.loss):
            values = self.loss(embeddings, labels, **references)
        anchor1, positive, anchor2, negative = loss_and_miner_utils.convert_to_pairs(
            indices_tuple, labels, references.get("ref_labels")
        )
        return {
            "pos_loss": _pair_losses(values, anchor1, positive, "pos_pair"),
            "neg_loss": _pair_losses(values, anchor2, negative, "neg_pair"),
        }

    def _compute_anchor_losses(self, embeddings: Tensor, options: dict[str, Any]) -> dict[str, dict[str, Any]]:
        with _single_values(self.loss):
            values: Tensor = self.loss(embeddings, **options)
        tuples = options.get("tuples")
        if not isinstance(tuples, Relation) and tuples is not None and len(tuples) == 3:
            return {"loss": {"losses": values, "indices": tuple(tuples), "reduction_type": "triplet"}}
        # anchors without a positive or a negative have no loss, except in a few losses, where it is not zero
        keep = _find_anchors(embeddings, options) | (values.detach() != 0)
        return {"loss": _element_losses(values[keep], keep.nonzero().squeeze(1))}

    def _compute_proxy_losses(
        self,
        embeddings: Tensor,
        labels: Tensor | None,
        indices_tuple: IndicesTuple | None,
        references: dict[str, Any],
    ) -> dict[str, dict[str, Any]]:
        """Return the losses of the items, each with the weight that its number of occurrences gives it."""
        if indices_tuple is None and not self.splits_values:
            return {"loss": _already_reduced(self.loss(embeddings, labels, **references))}
        if labels is None:
            raise ValueError(f"{type(self.loss).__name__} needs the class of every item: pass labels")
        if self.loss.proxies_are_anchors:
            raise ValueError(
                f"{type(self.loss).__name__} has one value for each class and cannot weight items: pass no "
                "indices_tuple"
            )
        with _single_values(self.loss):
            values: Tensor = self.loss(embeddings, labels, **references)
        values = values * loss_and_miner_utils.convert_to_weights(indices_tuple, labels, dtype=values.dtype)
        if self.splits_values:
            return {"loss": _element_losses(values, torch.arange(len(values), device=values.device))}
        value = values.sum() if self.loss.reduction == "sum" else values.mean()
        regularizer = self.loss.regularizer()
        return {"loss": _already_reduced(value if regularizer is None else value + regularizer)}


class MinerForPML(BaseMiner):
    """A miner of kinfold with the interface of pytorch-metric-learning.

    `forward(embeddings, labels, ref_emb=None, ref_labels=None)` returns (anchor, positive, negative) or (anchor1,
    positive, anchor2, negative), by what the miner selects. The draws come from the generator of the miner, whose state
    is in `state_dict`; the global one is not used. Distances are always those of unit vectors.

    Args:
        miner: A miner of kinfold, or its registered name if it needs no options.

    Examples:
        >>> anchor, positive, negative = MinerForPML("hard")(torch.eye(4), torch.tensor([0, 0, 1, 1]))
        >>> positive
        tensor([1, 0, 3, 2])
    """

    def __init__(self, miner: Miner | str) -> None:
        super().__init__()
        inner: Miner = registry.create("miners", miner) if isinstance(miner, str) else miner
        if not isinstance(inner, Miner):
            raise ValueError(f"MinerForPML takes a kinfold.miners.Miner, got {type(inner).__name__}")
        self.miner = inner

    def mine(self, embeddings: Tensor, labels: Tensor, ref_emb: Tensor, ref_labels: Tensor) -> tuple[Tensor, ...]:
        """Return index tensors; called by `forward`."""
        references = {} if ref_emb is embeddings else {"ref_embeddings": ref_emb, "ref_labels": ref_labels}
        selected = self.miner(embeddings, labels, **references)
        if isinstance(selected, Triplets):
            return tuple(index[selected.valid] for index in (selected.anchor, selected.positive, selected.negative))
        return (*torch.where(selected.positives), *torch.where(selected.negatives))


class SamplerForPML(TorchSampler[int]):
    """A batch sampler of kinfold as a sampler of single items, as the trainers of pytorch-metric-learning take it.

    `DataLoader(dataset, sampler=SamplerForPML(sampler), batch_size=sampler.batch_size)` has the batches of
    `DataLoader(dataset, batch_sampler=sampler)`, if `batch_size` is the same.

    Args:
        sampler: A sampler of kinfold that needs no embeddings.

    Raises:
        ValueError: The sampler chooses items by their embeddings, which nobody would pass on to it.

    Examples:
        >>> import kinfold
        >>> sampler = kinfold.samplers.create("spc", [0, 0, 1, 1], batch_size=4, per_class=2)
        >>> sorted(SamplerForPML(sampler))
        [0, 1, 2, 3]
    """

    def __init__(self, sampler: Sampler) -> None:
        if sampler.needs_embeddings:
            raise ValueError(
                f"{type(sampler).__name__} chooses items by their embeddings, which trainers of other libraries do not "
                "pass on: use a sampler such as 'spc', or a loop that calls sampler.update"
            )
        self.sampler = sampler

    def __iter__(self) -> Iterator[int]:
        for batch in self.sampler:
            yield from batch

    def __len__(self) -> int:
        return len(self.sampler) * self.sampler.batch_size // self.sampler.world_size

    def set_epoch(self, epoch: int) -> None:
        """Make the next iteration this epoch."""
        self.sampler.set_epoch(epoch)


def _check_reducer(loss: Loss, reducer: Any) -> None:
    if isinstance(reducer, DivisorReducer):
        raise ValueError(
            "DivisorReducer divides by a number that the loss provides, and losses of kinfold provide none: leave the "
            "reducer out, and set reduction= of the loss"
        )
    if loss.kind == "batch" or loss.proxies_are_anchors:
        raise ValueError(
            f"{type(loss).__name__} has no values of single pairs or items that {type(reducer).__name__} could reduce: "
            "leave the reducer out, and set reduction= of the loss"
        )


@contextmanager
def _single_values(loss: Loss) -> Iterator[None]:
    """Let a loss return single values inside the block."""
    reduction: Reduction = loss.reduction
    loss.reduction = "none"
    try:
        yield
    finally:
        loss.reduction = reduction


def _find_anchors(embeddings: Tensor, options: dict[str, Any]) -> Tensor:
    """Return which anchors have a positive and a negative, (B,)."""
    tuples = options.get("tuples")
    if tuples is None:
        refs = options.get("ref_labels")
        return Relation.from_labels(options["labels"], refs).has_both()
    if isinstance(tuples, Relation):
        return tuples.has_both()
    first, _, second, _ = tuples
    counted = [torch.zeros(len(embeddings), dtype=torch.bool, device=embeddings.device) for _ in range(2)]
    for mask, anchor in zip(counted, (first, second), strict=True):
        mask[anchor] = True
    return counted[0] & counted[1]


def _mask_pairs(row: Tensor, column: Tensor, shape: tuple[int, int], embeddings: Tensor) -> Tensor:
    mask = torch.zeros(shape, dtype=torch.bool, device=embeddings.device)
    mask[row.to(embeddings.device), column.to(embeddings.device)] = True
    return mask


def _already_reduced(value: Tensor) -> dict[str, Any]:
    return {"losses": value, "indices": None, "reduction_type": "already_reduced"}


def _element_losses(values: Tensor, index: Tensor) -> dict[str, Any]:
    if not len(index):
        return _already_reduced(values.sum())
    return {"losses": values, "indices": index, "reduction_type": "element"}


def _pair_losses(values: Tensor, row: Tensor, column: Tensor, reduction_type: str) -> dict[str, Any]:
    if not len(row):
        return _already_reduced(values.sum() * 0.0)
    return {"losses": values[row, column], "indices": (row, column), "reduction_type": reduction_type}
