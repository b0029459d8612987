"""A loss with its miner: called like a loss, looks only at what the miner chose."""

from typing import Any

from torch import Tensor, nn

from kinfold import registry
from kinfold.losses.loss import Loss
from kinfold.miners import Miner
from kinfold.pairs import Labels


class Mined(nn.Module):
    """`Mined(loss, miner)(embeddings, labels)` is `loss(embeddings, labels, tuples=miner(embeddings, labels))`.

    Both may be names, where their usual options will do.

    >>> import torch, kinfold
    >>> mined = Mined("margin", kinfold.miners.create("distance-weighted", lower_cutoff=0.6))
    >>> mined(torch.eye(4), torch.tensor([0, 0, 1, 1])).shape
    torch.Size([])
    """

    def __init__(self, loss: Loss | str, miner: Miner | str) -> None:
        super().__init__()
        loss = registry.create("losses", loss) if isinstance(loss, str) else loss
        miner = registry.create("miners", miner) if isinstance(miner, str) else miner
        if loss.proxies is not None:
            raise ValueError(
                f"{type(loss).__name__} compares samples with its own proxies: there is nothing to mine; leave the "
                "miner out (in a recipe: --set miner.name=none)"
            )
        self.loss: Loss = loss
        self.miner: Miner = miner

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
    ) -> Tensor:
        """The loss of what the miner chose; arguments as those of a loss."""
        given: dict[str, Any] = {
            "relation": relation,
            "ref_embeddings": ref_embeddings,
            "ref_labels": ref_labels,
            "ids": ids,
            "ref_ids": ref_ids,
        }
        mined = {"labels": labels, **given}
        if relation is not None and self.loss.uses_labels:  # labels are for the loss: the miner looks at the relation
            mined |= {"labels": None, "ref_labels": None}
        tuples = self.miner(embeddings, **mined)
        return self.loss(embeddings, labels, **given, tuples=tuples)  # type: ignore[no-any-return]

    def pair_weights(self, embeddings: Tensor, labels: Labels | None = None) -> Tensor:
        """dL/dS (B, B) of the mined loss: zero for every pair that the miner left out."""
        return self.loss.pair_weights(embeddings, labels, tuples=self.miner(embeddings, labels))
