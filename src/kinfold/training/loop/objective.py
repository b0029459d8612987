"""What a step minimizes: the loss of the global batch, and its loss against a memory of earlier batches."""

from typing import Any

import torch
from torch import Tensor, nn

from kinfold import pairs
from kinfold.data.label_table import LabelTable
from kinfold.losses import Loss, Mined, Nested
from kinfold.seeding import derive_generator
from kinfold.training.loop.item_groups import ItemGroups


class Objective(nn.Module):
    """loss(batch) + weight * loss(batch against memory), the second term from step `start` on.

    Cross-batch memory: Wang et al., CVPR 2020.

    Args:
        loss: The loss, with or without a miner.
        memory: Embeddings of earlier batches.
        start: First step that uses the memory.
        weight: Weight of the second term.

    Raises:
        ValueError: A memory is given to a loss that compares samples with proxies only.
    """

    def __init__(
        self,
        loss: Loss | Mined | Nested,
        memory: pairs.CrossBatchMemory | None = None,
        start: int = 0,
        weight: float = 1.0,
    ) -> None:
        super().__init__()
        self.loss = loss
        self.memory = memory
        self.start = start
        self.weight = weight
        self.groups: ItemGroups | None = None  # of the training items, for ensembles that cluster them
        self.label_table: LabelTable | None = None  # of the training items, which says how pairs are related
        self._random_modules = find_random_modules(loss)
        inner = get_inner_loss(loss)
        if memory is not None and inner.proxies is not None:
            raise ValueError(
                f"{type(inner).__name__} compares samples with its own proxies and cannot use a memory of samples: "
                "leave the memory out"
            )

    @property
    def logged(self) -> dict[str, float | Tensor]:
        """Further values of the last batch by name, for the log."""
        return {}

    def compute_batch_loss(self, embeddings: Tensor, labels: Tensor, ids: Tensor | None = None) -> Tensor:
        """Return the loss of the batch without the memory.

        Args:
            embeddings: (B, d).
            labels: (B,).
            ids: Positions of the items in the dataset, (B,); needed with a label table.
        """
        return self._compare(embeddings, labels, ids)

    def _compare(self, embeddings: Tensor, labels: Tensor, ids: Tensor | None, **reference: Any) -> Tensor:
        """Return the loss of the batch, or of the batch against a reference set."""
        if reference:
            reference["ids"] = ids
        if self.label_table is not None:
            assert ids is not None, "related items need their positions"
            reference["relation"] = self.label_table.relate(ids, reference.get("ref_ids"))
            if not get_inner_loss(self.loss).uses_labels:  # others would ignore labels beside a relation
                reference["ref_labels"] = None
                return self.loss(embeddings, **reference)  # type: ignore[no-any-return]
        return self.loss(embeddings, labels, **reference)  # type: ignore[no-any-return]

    def forward(self, embeddings: Tensor, labels: Tensor, ids: Tensor, step: int) -> Tensor:
        """Return the objective of a global batch, and add the batch to the memory.

        Args:
            embeddings: (B, d), with gradients.
            labels: (B,).
            ids: Positions of the items in the dataset, (B,).
            step: The training step, from 0.

        Returns:
            A scalar.
        """
        value = self.compute_batch_loss(embeddings, labels, ids)
        if self.memory is not None:
            self.memory.update(embeddings, labels, ids)
            if step >= self.start:
                value = value + self.weight * self._compare(embeddings, labels, ids, **self.memory.reference())
        return value

    def seed(self, *numbers: int) -> None:
        """Make every draw of this step a function of these numbers, on every process and after every resume."""
        for index, module in enumerate(self._random_modules):
            module.generator.manual_seed(derive_generator(*numbers, index).initial_seed())


def find_random_modules(module: nn.Module) -> list[Any]:
    """Return the submodules that draw from a generator of their own, in order."""
    return [inner for inner in module.modules() if isinstance(getattr(inner, "generator", None), torch.Generator)]


def get_inner_loss(loss: Loss | Mined | Nested) -> Loss:
    """Return the loss without its miner and its prefixes."""
    loss = loss.loss if isinstance(loss, Nested) else loss
    return loss.loss if isinstance(loss, Mined) else loss
