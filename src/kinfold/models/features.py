"""The backbone of feature files: the rows are the features, and only a head is trained."""

import torch
from torch import Tensor

from kinfold.models.backbone import Backbone


class Features(Backbone):
    """(B, width) as they are; half-precision rows, as files keep them, become float32.

    >>> Features(width=2)(torch.tensor([[1.0, 2.0]], dtype=torch.float16))
    tensor([[1., 2.]])
    """

    mode = None

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def forward(self, images: Tensor) -> Tensor:
        if images.ndim != 2 or images.shape[1] != self.width:
            raise ValueError(
                f"expected features of shape (B, {self.width}), got {tuple(images.shape)}; "
                "the width of the file is given as backbone_options={'width': ...}"
            )
        if not images.is_floating_point() or images.dtype in (torch.float16, torch.bfloat16):
            return images.float()
        return images
