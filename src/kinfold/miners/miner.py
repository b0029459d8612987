"""What all miners share: the call, the source of random numbers, and the switch of rho-regularisation."""

from dataclasses import replace

import torch
from torch import Tensor, nn

from kinfold.miners.drawing import choose
from kinfold.pairs import Labels, Relation, Triplets, View, dot, full_precision, normalize, sphere_distance, view

# pairs that are looked at together: 4 MB in float32, which the processor's cache holds
BLOCK_PAIRS = 2**20


class Miner(nn.Module):
    """Narrow a relation to the pairs that matter, or draw one triplet per anchor; no gradient passes through.

    Distances are Euclidean on L2-normalised embeddings. Random draws come from `generator` alone; without one the
    miner owns a generator seeded with 0. Its state is part of `state_dict`.

    `switch` (triplet miners only) is the rho-regularisation of Roth et al. (ICML 2020): with this probability an
    anchor's triplet becomes (a, a, n) with n a uniformly drawn class mate of a, so that kin are pushed apart.
    """

    by_rows = True

    def __init__(self, generator: torch.Generator | None = None, switch: float = 0.0) -> None:
        super().__init__()
        if not 0.0 <= switch <= 1.0:
            raise ValueError(f"switch is a probability in [0, 1], got {switch}")
        self.generator = torch.Generator().manual_seed(0) if generator is None else generator
        self.switch = switch

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
        """The narrower relation, or the triplets; arguments as those of a loss."""
        if labels is not None and relation is not None:
            raise ValueError("a miner takes positives and negatives from labels or from relation=: give one of them")
        with torch.no_grad(), full_precision(embeddings):
            seen = view(
                embeddings,
                labels,
                relation=relation,
                ref_embeddings=ref_embeddings,
                ref_labels=ref_labels,
                ids=ids,
                ref_ids=ref_ids,
            )
            if seen.relation.degree is not None:
                raise ValueError("a miner needs a boolean relation: kin or not; threshold the real-valued one first")
            return self.look(seen)

    def look(self, seen: View) -> Relation | Triplets:
        """What is mined in a view, by blocks of rows where it is large."""
        x = normalize(seen.anchors)
        seen = replace(seen, anchors=x, references=x if seen.symmetric else normalize(seen.references))
        count, columns = seen.relation.positives.shape
        rows = max(64, BLOCK_PAIRS // max(1, columns))
        if not self.by_rows or count <= rows:
            return self.mine(seen)
        found = [self.mine(seen.rows(slice(start, min(start + rows, count)))) for start in range(0, count, rows)]
        return _joined(found)

    def mine(self, seen: View) -> Relation | Triplets:
        """The choice for the anchors of a view of unit vectors; each anchor's does not depend on the others'."""
        raise NotImplementedError(f"{type(self).__name__} does not say what it mines")

    def triplets(self, seen: View, positive: Tensor, negative: Tensor, valid: Tensor) -> Triplets:
        """One triplet per anchor, after the switch."""
        anchor = _numbers(seen)
        if self.switch > 0:
            itself, present = self.own_index(seen)
            mate, has_mate = choose(seen.relation.positives, self.generator)
            chance = torch.rand(anchor.shape[0], generator=self.generator, device=self.generator.device)
            switched = (chance.to(anchor.device) < self.switch) & has_mate & present
            positive = torch.where(switched, itself, positive)
            negative = torch.where(switched, mate, negative)
            valid = valid | switched
        return Triplets(anchor, positive, negative, valid)

    def own_index(self, seen: View) -> tuple[Tensor, Tensor]:
        """Where each anchor stands among the references, and whether it does."""
        anchor = _numbers(seen)
        if seen.symmetric:
            return anchor, torch.ones_like(anchor, dtype=torch.bool)
        if seen.same is None:
            raise ValueError(
                "(a, a, n) needs the anchor among the references: give ids and ref_ids, or leave the reference set out"
            )
        if seen.same.shape[1] == 0:
            return anchor * 0, torch.zeros_like(anchor, dtype=torch.bool)
        return seen.same.int().argmax(dim=1), seen.same.any(dim=1)

    def get_extra_state(self) -> Tensor:
        return self.generator.get_state()

    def set_extra_state(self, state: Tensor) -> None:
        self.generator.set_state(state)


def similarities(seen: View) -> Tensor:
    """(B, R) cosines, of anchors and references that are unit vectors already."""
    return dot(seen.anchors, seen.references)


def sphere_distances(seen: View) -> Tensor:
    """(B, R) Euclidean distances on the unit sphere."""
    return sphere_distance(similarities(seen))


def _numbers(seen: View) -> Tensor:
    return torch.arange(seen.first, seen.first + seen.anchors.shape[0], device=seen.anchors.device)


def _joined(found: "list[Relation | Triplets]") -> Relation | Triplets:
    kind = type(found[0])
    names = ("positives", "negatives") if kind is Relation else ("anchor", "positive", "negative", "valid")
    return kind(*(torch.cat([getattr(part, name) for part in found]) for name in names))
