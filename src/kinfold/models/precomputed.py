"""The backbone for feature files: rows are used as features, and only a head is trained."""

import torch
from torch import Tensor, nn

from kinfold.models.backbone import Backbone


class PrecomputedFeatures(Backbone):
    """Return rows of features (B, width) unchanged or standardized; half precision becomes float32.

    Args:
        width: Number of columns.
        standardize: Subtract the mean of the training rows and divide by their root mean square distance from it, one
            number for all columns. A learning rate then has the same effect for features of any scale. The method
            `standardize` computes both; before it is called, rows are not changed.

    Examples:
        >>> PrecomputedFeatures(width=2)(torch.tensor([[1.0, 2.0]], dtype=torch.float16))
        tensor([[1., 2.]])
    """

    mode = None
    mean: Tensor | None
    scale: Tensor | None

    def __init__(self, width: int, standardize: bool = False) -> None:
        super().__init__()
        self.width = width
        self.register_buffer("mean", torch.zeros(width) if standardize else None)
        self.register_buffer("scale", torch.ones(()) if standardize else None)

    def forward(self, images: Tensor) -> Tensor:
        if images.ndim != 2 or images.shape[1] != self.width:
            raise ValueError(
                f"expected features of shape (B, {self.width}), got {tuple(images.shape)}; "
                "the width of the file is given as backbone_options={'width': ...}"
            )
        if not images.is_floating_point() or images.dtype in (torch.float16, torch.bfloat16):
            images = images.float()
        if self.mean is None or self.scale is None:
            return images
        return (images - self.mean) / self.scale

    def standardize(self, rows: Tensor) -> Tensor:
        """Compute mean and scale from the training rows (N, width); returns the standardized rows.

        Examples:
            >>> PrecomputedFeatures(width=1, standardize=True).standardize(torch.tensor([[1.0], [5.0]])).flatten()
            tensor([-1.,  1.])
        """
        if self.mean is None or self.scale is None:
            raise ValueError("these features are taken as they are; create them with standardize=True")
        mean = rows.mean(dim=0, dtype=torch.float64)
        deviations = rows - mean.to(rows.dtype)
        scale = deviations.square().sum(dim=1, dtype=torch.float64).mean().sqrt()
        if not scale.isfinite():
            raise ValueError("the features have entries that are not finite, or too large to be squared")
        if scale == 0:
            raise ValueError("all rows are equal: nothing distinguishes the classes")
        self.mean.copy_(mean)
        self.scale.copy_(scale)
        return deviations / self.scale.to(rows)

    def fold_into(self, head: nn.Module) -> None:
        """Move the standardization into the first linear layer of a head; rows are not standardized afterwards."""
        if self.mean is None or self.scale is None:
            return
        first = next(module for module in head.modules() if isinstance(module, nn.Linear))
        with torch.no_grad():
            weight = first.weight.double() / self.scale.double()
            first.bias.copy_(first.bias.double() - weight @ self.mean.double())
            first.weight.copy_(weight)
        self.mean = self.scale = None
