"""Which gallery items are relevant to a query: those of its class, but not the query itself."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True)
class Relevance:
    """Gallery items by class: class c holds members[start[c] : start[c] + size[c]].

    query_class: (Q,) index into the classes of the gallery, -1 where the gallery has none.
    same: the gallery is the set of queries itself.
    """

    members: Tensor
    start: Tensor
    size: Tensor
    query_class: Tensor
    same: bool

    @property
    def counts(self) -> Tensor:
        """Relevant items of each query, (Q,)."""
        known = self.query_class >= 0
        counts = torch.where(known, self.size[self.query_class.clamp(min=0)], 0)
        return counts - 1 if self.same else counts

    @cached_property
    def gallery_class(self) -> Tensor:
        """The class of each gallery row, (N,)."""
        classes = torch.empty_like(self.members)
        classes[self.members] = torch.arange(self.size.shape[0], device=classes.device).repeat_interleave(self.size)
        return classes

    def order(self) -> Tensor:
        """Queries that have a relevant item, those with few first, classes together."""
        counts = self.counts
        queries = (counts > 0).nonzero().squeeze(1)
        by_class = queries[torch.argsort(self.query_class[queries], stable=True)]
        return by_class[torch.argsort(counts[by_class], stable=True)]

    def of(self, which: Tensor) -> tuple[Tensor, Tensor]:
        """Members (B, R) of the classes of queries `which`, the query itself among them, and which count."""
        kind = self.query_class[which]
        size = self.size[kind]
        place = torch.arange(int(size.max()), device=which.device)
        valid = place < size[:, None]
        items = self.members[(self.start[kind][:, None] + place).clamp(max=self.members.shape[0] - 1)]
        if self.same:
            valid = valid & (items != which[:, None])
        return items, valid


def relevance(labels: Tensor, gallery_labels: Tensor | None) -> Relevance:
    """From int64 labels of the queries (Q,) and, where it is another set, of the gallery (N,)."""
    others = labels if gallery_labels is None else gallery_labels
    classes, code, size = torch.unique(others, return_inverse=True, return_counts=True)
    members = torch.argsort(code, stable=True)
    start = size.cumsum(0) - size
    if gallery_labels is None:
        return Relevance(members, start, size, code, True)
    place = torch.searchsorted(classes, labels).clamp(max=classes.shape[0] - 1)
    query_class = torch.where(classes[place] == labels, place, -1)
    return Relevance(members, start, size, query_class, False)
