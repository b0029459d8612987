"""Weights of classes: anchors of a rare or an important class count more."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from kinfold import registry
from kinfold.losses.loss import Loss
from kinfold.losses.mined import Mined
from kinfold.losses.nested import Nested
from kinfold.losses.proxies import check_class_range
from kinfold.pairs import Labels
from kinfold.pairs.labels import encode


class ClassWeighted(nn.Module):
    """A loss in which every anchor has the weight of its class: `sample_weight` = class_weights[labels].

    The weights are in `state_dict` and are not trained.

    Args:
        loss: Any loss that takes `sample_weight`, with or without a miner, or its registered name.
        class_weights: The weight of each class 0..C-1, (C,), not negative; see `balance_classes`.

    Raises:
        ValueError: The weights are not valid, or the loss takes none.

    Examples:
        >>> loss = ClassWeighted("supcon", [1.0, 3.0])
        >>> loss(torch.eye(4), torch.tensor([0, 0, 1, 1])).shape
        torch.Size([])
    """

    class_weights: Tensor

    def __init__(self, loss: Loss | Mined | Nested | str, class_weights: Tensor | Sequence[float]) -> None:
        super().__init__()
        self.loss: Loss | Mined | Nested = registry.create("losses", loss) if isinstance(loss, str) else loss
        weights = torch.as_tensor(class_weights, dtype=torch.float32).detach().clone()
        if weights.dim() != 1 or not bool((weights.isfinite() & (weights >= 0)).all()) or not bool((weights > 0).any()):
            raise ValueError("class_weights must be a list of finite weights, none below zero and not all zero")
        self.register_buffer("class_weights", weights)

    def forward(
        self,
        embeddings: Tensor,
        labels: Labels,
        *,
        relation: Tensor | None = None,
        ref_embeddings: Tensor | None = None,
        ref_labels: Labels | None = None,
        ids: Tensor | None = None,
        ref_ids: Tensor | None = None,
        sample_weight: Tensor | None = None,
    ) -> Tensor:
        """Return the weighted loss; arguments as in `Loss.forward`, with labels in 0..C-1.

        A `sample_weight` is multiplied with the weights of the classes. Labels beside `relation` say which class an
        anchor belongs to.
        """
        (codes,) = encode(labels, device=embeddings.device)
        check_class_range(codes, len(self.class_weights))
        weights = self.class_weights.to(codes.device)[codes]
        options: dict[str, Any] = {
            "relation": relation,
            "ref_embeddings": ref_embeddings,
            "ref_labels": ref_labels,
            "ids": ids,
            "ref_ids": ref_ids,
            "sample_weight": weights if sample_weight is None else weights * sample_weight,
        }
        is_labeled = relation is None or any(isinstance(m, Loss) and m.uses_labels for m in self.loss.modules())
        return self.loss(embeddings, labels if is_labeled else None, **options)  # type: ignore[no-any-return]


def balance_classes(labels: Tensor, num_classes: int | None = None) -> Tensor:
    """Return weights with which all classes count the same: N / (C n_c) for a class of n_c of the N items.

    Args:
        labels: Labels of all training items, integers in 0..C-1, (N,).
        num_classes: C; by default one above the highest label. Classes without items get the weight zero.

    Returns:
        (C,), float32; their mean over the items is 1 if every class has items.

    Examples:
        >>> balance_classes(torch.tensor([0, 0, 0, 1]))
        tensor([0.6667, 2.0000])
    """
    if labels.dim() != 1 or labels.is_floating_point() or labels.numel() == 0:
        raise ValueError(
            f"labels must be integers of shape (N,), at least one; got {labels.dtype} {tuple(labels.shape)}"
        )
    number = int(labels.max()) + 1 if num_classes is None else num_classes
    check_class_range(labels, number)
    sizes = torch.bincount(labels, minlength=number).float()
    return torch.where(sizes > 0, len(labels) / (number * sizes.clamp(min=1.0)), 0.0)
