"""What all miners share: the call, the random number generator, and the `switch` of rho-regularization."""

import inspect
from dataclasses import replace

import torch
from torch import Tensor, nn

from kinfold.miners.drawing import draw_uniform
from kinfold.pairs import (
    Labels,
    PairBatch,
    Relation,
    Triplets,
    full_precision,
    make_pair_batch,
)
from kinfold.pairs.distances import COSINE, Distance, PairDistance, read_distance

# pairs in a row chunk: 4 MB in float32, which fits into the processor's cache
CHUNK_PAIRS = 2**20


class Miner(nn.Module):
    """Base class: select the pairs that a loss uses, or one triplet per anchor. No gradient passes through.

    A subclass implements `mine`. Distances are Euclidean distances of L2-normalized embeddings, unless the miner or the
    loss that it serves has another distance. Random numbers come from `generator` only, and its state is part of
    `state_dict`.

    Args:
        generator: Source of random numbers; by default a new one with seed 0.
        switch: Rho-regularization of Roth et al. (ICML 2020), for triplet miners: with this probability the triplet of
            an anchor a is replaced by (a, a, n), where n is a random item of the class of a. This pushes positives
            apart.
        distance: How pairs are measured, for miners with this option, see `kinfold.pairs.distances`. None is the
            distance of the loss in `Mined` and in recipes, and "cosine" elsewhere.

    Attributes:
        pair_distance: The distance in use.
        supports_chunks: Whether `mine` may be called for a part of the anchors at a time.
    """

    supports_chunks = True

    def __init__(
        self, generator: torch.Generator | None = None, switch: float = 0.0, distance: Distance | None = None
    ) -> None:
        super().__init__()
        if not 0.0 <= switch <= 1.0:
            raise ValueError(f"switch is a probability in [0, 1], got {switch}")
        self.generator = torch.Generator().manual_seed(0) if generator is None else generator
        self.switch = switch
        self.distance = distance
        self.pair_distance = COSINE if distance is None else read_distance(distance)

    def follow(self, distance: PairDistance) -> None:
        """Take the distance of a loss, if the miner has the option and was made without one."""
        if self.distance is None and "distance" in inspect.signature(type(self)).parameters:
            self.pair_distance = distance

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
    ) -> Relation | Triplets:
        """Return the selected pairs or triplets; arguments as in `kinfold.pairs.make_pair_batch`."""
        if labels is not None and relation is not None:
            raise ValueError("a miner takes positives and negatives from labels or from relation=: give one of them")
        with torch.no_grad(), full_precision(embeddings):
            batch = make_pair_batch(
                embeddings,
                labels,
                relation=relation,
                ref_embeddings=ref_embeddings,
                ref_labels=ref_labels,
                ids=ids,
                ref_ids=ref_ids,
            )
            if batch.relation.degree is not None:
                raise ValueError("a miner needs a boolean relation: apply a threshold to the real-valued one first")
            return self.select(batch)

    def select(self, batch: PairBatch) -> Relation | Triplets:
        """Prepare the embeddings of a batch for the distance and mine it, in row chunks if it is large."""
        x = self.pair_distance.make_operand(batch.anchors)
        y = x if batch.symmetric else self.pair_distance.make_operand(batch.references)
        batch = replace(batch, anchors=x, references=y)
        count, columns = batch.relation.positives.shape
        rows = max(64, CHUNK_PAIRS // max(1, columns))
        if not self.supports_chunks or count <= rows:
            return self.mine(batch)
        starts = range(0, count, rows)
        return _concatenate([self.mine(batch.select_rows(slice(start, min(start + rows, count)))) for start in starts])

    def mine(self, batch: PairBatch) -> Relation | Triplets:
        """Select pairs or triplets of a batch, of unit vectors for the cosine; implemented by each miner.

        With `supports_chunks` the selection for an anchor must not depend on the other anchors.
        """
        raise NotImplementedError(f"{type(self).__name__} does not implement mine(batch)")

    def compute_distances(self, batch: PairBatch) -> Tensor:
        """Distances (B, R) of the rows that `mine` gets, by the distance of the miner."""
        return self.pair_distance.measure_distances(batch.anchors, batch.references)

    def compute_similarities(self, batch: PairBatch) -> Tensor:
        """Similarities (B, R) of the rows that `mine` gets: cosines, dot products, or minus the distances."""
        return self.pair_distance.measure_similarities(batch.anchors, batch.references)

    def make_triplets(self, batch: PairBatch, positive: Tensor, negative: Tensor, valid: Tensor) -> Triplets:
        """Make one triplet per anchor and apply `switch`; all arguments are (B,)."""
        anchor = _number_anchors(batch)
        if self.switch > 0:
            itself, is_reference = self.find_anchors(batch)
            class_mate, has_class_mate = draw_uniform(batch.relation.positives, self.generator)
            chance = torch.rand(anchor.shape[0], generator=self.generator, device=self.generator.device)
            switched = (chance.to(anchor.device) < self.switch) & has_class_mate & is_reference
            positive = torch.where(switched, itself, positive)
            negative = torch.where(switched, class_mate, negative)
            valid = valid | switched
        return Triplets(anchor, positive, negative, valid)

    def find_anchors(self, batch: PairBatch) -> tuple[Tensor, Tensor]:
        """Return the column of each anchor among the references (B,), and whether it has one (B,)."""
        anchor = _number_anchors(batch)
        if batch.symmetric:
            return anchor, torch.ones_like(anchor, dtype=torch.bool)
        if batch.same_item is None:
            raise ValueError(
                "(a, a, n) needs the anchor among the references: pass ids and ref_ids, or no reference set"
            )
        if batch.same_item.shape[1] == 0:
            return anchor * 0, torch.zeros_like(anchor, dtype=torch.bool)
        return batch.same_item.int().argmax(dim=1), batch.same_item.any(dim=1)

    def get_extra_state(self) -> Tensor:
        return self.generator.get_state()

    def set_extra_state(self, state: Tensor) -> None:
        self.generator.set_state(state)


def _number_anchors(batch: PairBatch) -> Tensor:
    return torch.arange(batch.first_row, batch.first_row + batch.anchors.shape[0], device=batch.anchors.device)


def _concatenate(parts: "list[Relation | Triplets]") -> Relation | Triplets:
    kind = type(parts[0])
    names = ("positives", "negatives") if kind is Relation else ("anchor", "positive", "negative", "valid")
    return kind(*(torch.cat([getattr(part, name) for part in parts]) for name in names))
