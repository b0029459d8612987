"""Groups of the training items by k-means on their embeddings, for methods that cluster while they train."""

import torch
from torch import Tensor, nn

from kinfold.metrics import k_means
from kinfold.models.ensemble import ItemGrouping
from kinfold.pairs import normalize


class ItemGroups(nn.Module):
    """The group of every training item, in `state_dict`, so that a resumed run continues with the same groups.

    Args:
        grouping: How many groups, how often, and of what.
    """

    def __init__(self, grouping: ItemGrouping) -> None:
        super().__init__()
        self.grouping = grouping
        self._groups = torch.zeros(0, dtype=torch.int64)

    def is_due(self, epoch: int) -> bool:
        """Return whether items are to be grouped before this epoch."""
        return epoch % self.grouping.every == 0 or len(self._groups) == 0

    @torch.no_grad()
    def update(self, embeddings: Tensor, labels: Tensor, seed: int) -> None:
        """Group all training items.

        Args:
            embeddings: (N, d), in the order of the training items.
            labels: (N,).
            seed: Seed of the first centers.
        """
        rows = normalize(embeddings.double().cpu())
        if self.grouping.within_class:
            rows = standardize_within_classes(rows, labels.cpu())
        count = min(self.grouping.count, len(rows))
        self._groups = k_means(rows.float(), count, seed=seed).clusters.cpu()

    def get(self, ids: Tensor | None, labels: Tensor) -> Tensor:
        """Return the groups (B,) of the items of a batch; all are in group 0 before the first grouping."""
        if ids is None or len(self._groups) == 0:
            return torch.zeros_like(labels)
        return self._groups[ids.cpu()].to(labels.device)

    def get_extra_state(self) -> Tensor:
        return self._groups

    def set_extra_state(self, state: Tensor) -> None:
        self._groups = state


def standardize_within_classes(rows: Tensor, labels: Tensor) -> Tensor:
    """Subtract the mean of its class from every row (N, d), and divide by the deviation of the class.

    A class of one item becomes zero.

    Examples:
        >>> standardize_within_classes(torch.tensor([[1.0], [3.0], [7.0]]), torch.tensor([0, 0, 1])).flatten()
        tensor([-1.,  1.,  0.])
    """
    _, codes, counts = torch.unique(labels, return_inverse=True, return_counts=True)
    shape = (len(counts), rows.shape[1])
    means = torch.zeros(shape, dtype=rows.dtype).index_add_(0, codes, rows) / counts[:, None]
    centered = rows - means[codes]
    variances = torch.zeros(shape, dtype=rows.dtype).index_add_(0, codes, centered.square()) / counts[:, None]
    standardized: Tensor = centered / variances.sqrt().clamp(min=1e-6)[codes]
    return standardized
