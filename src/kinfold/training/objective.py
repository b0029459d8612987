"""What a step minimises: the loss of the global batch, and its loss against a memory of earlier batches."""

from typing import Any

import torch
from torch import Tensor, nn

from kinfold import pairs
from kinfold.losses import Loss, Mined
from kinfold.seeding import derive_generator


class Objective(nn.Module):
    """loss(batch), plus weight x loss(batch against memory) from step `start` on (Wang et al., CVPR 2020)."""

    def __init__(
        self, loss: Loss | Mined, memory: pairs.CrossBatchMemory | None = None, start: int = 0, weight: float = 1.0
    ) -> None:
        super().__init__()
        self.loss = loss
        self.memory = memory
        self.start = start
        self.weight = weight
        self._drawing: list[Any] = [
            module for module in loss.modules() if isinstance(getattr(module, "generator", None), torch.Generator)
        ]
        inner = loss.loss if isinstance(loss, Mined) else loss
        if memory is not None and inner.proxies is not None:
            raise ValueError(
                f"{type(inner).__name__} compares samples with its own proxies: a memory of samples is of no use to it"
            )

    @property
    def logged(self) -> dict[str, float | Tensor]:
        """What else there is to know of the last batch, by name; more where an objective has several parts."""
        return {}

    def plain(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """The loss of the batch alone."""
        value: Tensor = self.loss(embeddings, labels)
        return value

    def forward(self, embeddings: Tensor, labels: Tensor, ids: Tensor, step: int) -> Tensor:
        """embeddings (B, d) with a graph, labels and ids (B,) of the global batch; a scalar."""
        value = self.plain(embeddings, labels)
        if self.memory is not None:
            self.memory.update(embeddings, labels, ids)
            if step >= self.start:
                reference = self.memory.reference()
                value = value + self.weight * self.loss(embeddings, labels, ids=ids, **reference)
        return value

    def seed(self, *numbers: int) -> None:
        """Let every draw of this step depend on these numbers alone: on every rank and after every resume the same."""
        for place, module in enumerate(self._drawing):
            module.generator.manual_seed(derive_generator(*numbers, place).initial_seed())
