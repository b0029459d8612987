"""The triplets that a sampler arranged: every three items of a batch are anchor, positive and negative."""

import torch

from kinfold.miners.miner import Miner
from kinfold.pairs import PairBatch, Triplets


class SampledTripletsMiner(Miner):
    """Select the triplets (0, 1, 2), (3, 4, 5), .. of a batch, as the sampler `smart-mining` arranges them.

    A triplet is valid if its second item is a positive of the first and its third a negative. Other anchors get no
    triplet. With a reference set the positions are those of the references.

    Args:
        generator: Not used: nothing is random.
    """

    def __init__(self, generator: torch.Generator | None = None) -> None:
        super().__init__(generator)

    def mine(self, batch: PairBatch) -> Triplets:
        relation = batch.relation
        rows, columns = relation.positives.shape
        anchor = torch.arange(batch.first_row, batch.first_row + rows, device=relation.positives.device)
        is_whole = (anchor % 3 == 0) & (anchor + 2 < columns)
        positive, negative = torch.where(is_whole, anchor + 1, 0), torch.where(is_whole, anchor + 2, 0)
        if columns == 0:
            return self.make_triplets(batch, positive, negative, is_whole)
        valid = is_whole & relation.contains_triplets(positive, negative)
        return self.make_triplets(batch, positive, negative, valid)
