"""The relevant gallery items of a query: those of its class, without the query itself."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True)
class Relevance:
    """Gallery items by class: class c has members[start[c] : start[c] + size[c]].

    Args:
        members: Gallery indices, ordered by class, (N,).
        start: The first position of each class in `members`, (C,).
        size: The number of gallery items of each class, (C,).
        query_class: The class of each query, (Q,), -1 if the gallery has no item of it.
        is_same_set: Whether the gallery is the set of queries itself.
    """

    members: Tensor
    start: Tensor
    size: Tensor
    query_class: Tensor
    is_same_set: bool

    @property
    def counts(self) -> Tensor:
        """The number of relevant items of each query, (Q,)."""
        in_gallery = self.query_class >= 0
        counts = torch.where(in_gallery, self.size[self.query_class.clamp(min=0)], 0)
        return counts - 1 if self.is_same_set else counts

    @cached_property
    def gallery_class(self) -> Tensor:
        """The class of each gallery row, (N,)."""
        classes = torch.empty_like(self.members)
        classes[self.members] = torch.arange(self.size.shape[0], device=classes.device).repeat_interleave(self.size)
        return classes

    def order_queries(self) -> Tensor:
        """Return the queries that have a relevant item: those with few first, queries of one class in sequence."""
        counts = self.counts
        queries = (counts > 0).nonzero().squeeze(1)
        by_class = queries[torch.argsort(self.query_class[queries], stable=True)]
        return by_class[torch.argsort(counts[by_class], stable=True)]

    def list_items(self, query_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return the class members of queries (B,), and which of them are relevant items.

        Returns:
            Gallery indices (B, R), padded, and a mask (B, R) without the padding and the query itself.
        """
        classes = self.query_class[query_ids]
        size = self.size[classes]
        position = torch.arange(int(size.max()), device=query_ids.device)
        valid = position < size[:, None]
        items = self.members[(self.start[classes][:, None] + position).clamp(max=self.members.shape[0] - 1)]
        if self.is_same_set:
            valid = valid & (items != query_ids[:, None])
        return items, valid


def build_relevance(labels: Tensor, gallery_labels: Tensor | None) -> Relevance:
    """Group gallery items by class.

    Args:
        labels: int64 labels of the queries, (Q,).
        gallery_labels: int64 labels of the gallery, (N,), or None if the gallery is the set of queries.
    """
    all_labels = labels if gallery_labels is None else gallery_labels
    classes, codes, size = torch.unique(all_labels, return_inverse=True, return_counts=True)
    members = torch.argsort(codes, stable=True)
    start = size.cumsum(0) - size
    if gallery_labels is None:
        return Relevance(members, start, size, codes, True)
    position = torch.searchsorted(classes, labels.contiguous()).clamp(max=classes.shape[0] - 1)
    query_class = torch.where(classes[position] == labels, position, -1)
    return Relevance(members, start, size, query_class, False)
