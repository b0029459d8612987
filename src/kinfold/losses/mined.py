"""A loss combined with a miner: called like a loss, uses only the pairs or triplets that the miner selects."""

from typing import Any

from torch import Tensor, nn

from kinfold import registry
from kinfold.losses.loss import Loss
from kinfold.miners import Miner
from kinfold.pairs import Labels


class Mined(nn.Module):
    """A loss of the pairs or triplets that a miner selects.

    `Mined(loss, miner)(embeddings, labels)` equals `loss(embeddings, labels, tuples=miner(embeddings, labels))`. The
    miner takes the distance of the loss, unless it was made with one or works on unit vectors alone.

    Args:
        loss: A loss without proxies, or its registered name.
        miner: A miner, or its registered name.

    Examples:
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
        miner.follow(loss.pair_distance)

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
        sample_weight: Tensor | None = None,
    ) -> Tensor:
        """Return the loss of the selected pairs or triplets; arguments as in `Loss.forward`."""
        options: dict[str, Any] = {
            "relation": relation,
            "ref_embeddings": ref_embeddings,
            "ref_labels": ref_labels,
            "ids": ids,
            "ref_ids": ref_ids,
        }
        miner_options = {"labels": labels, **options}
        if relation is not None and self.loss.uses_labels:  # labels are for the loss: the miner uses the relation
            miner_options |= {"labels": None, "ref_labels": None}
        tuples = self.miner(embeddings, **miner_options)
        return self.loss(embeddings, labels, **options, tuples=tuples, sample_weight=sample_weight)  # type: ignore[no-any-return]

    def pair_weights(self, embeddings: Tensor, labels: Labels | None = None) -> Tensor:
        """Return dL/dS (B, B): zero for every pair that the miner did not select."""
        return self.loss.pair_weights(embeddings, labels, tuples=self.miner(embeddings, labels))
