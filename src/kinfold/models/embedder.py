"""The network that is trained: a backbone, a pooling, a head."""

from typing import Any, Literal, Self, get_args

import torch
from torch import Tensor, nn

from kinfold import registry
from kinfold.models.backbone import Backbone
from kinfold.models.batch_norm import BatchNorm, check_batch_norm, freeze_affine, freeze_statistics

Pool = Literal["avg", "max", "avg+max"]


class Embedder(nn.Module):
    """Images (B, C, H, W), or rows of a feature file (B, d), to embeddings (B, dim), not normalised.

    pool: "avg", "max", or their sum "avg+max", over the places of a feature map
    batch_norm: of the backbone; "train", or frozen in one of two senses, which `train()` respects:
        "frozen-statistics": it normalises by its running statistics, which stay as they are; scale and shift learn
        "frozen": scale and shift stay as they are too
    """

    def __init__(
        self, backbone: Backbone, head: nn.Module, dim: int, pool: Pool = "avg", batch_norm: BatchNorm = "train"
    ) -> None:
        super().__init__()
        if pool not in get_args(Pool):
            near = registry.suggest(pool, get_args(Pool))
            raise ValueError(f"unknown pool {pool!r}{near}; there are {', '.join(get_args(Pool))}")
        check_batch_norm(batch_norm)
        self.backbone = backbone
        self.head = head
        self.dim = dim
        self.pool = pool
        self.batch_norm = batch_norm
        if batch_norm == "frozen":
            freeze_affine(backbone)
        self.train(self.training)

    def features(self, images: Tensor) -> Tensor:
        """(B, width), pooled"""
        if images.dtype == torch.uint8:
            raise ValueError(
                "a network takes normalised numbers, not bytes: kinfold.data.create_pipeline"
                f"({self.backbone.pipeline!r}).normalize(images) makes them"
            )
        maps = self.backbone(images)
        return pool_maps(maps, self.pool)

    def forward(self, images: Tensor) -> Any:
        """Embeddings (B, dim); a head that is an ensemble gives a named tuple in training, embeddings first."""
        return self.head(self.features(images))

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        if self.batch_norm != "train":
            freeze_statistics(self.backbone)
        return self

    def extra_repr(self) -> str:
        return f"dim={self.dim}, pool={self.pool!r}, batch_norm={self.batch_norm!r}"


def pool_maps(maps: Tensor, pool: Pool) -> Tensor:
    """(B, width, h, w) -> (B, width); features that are pooled already pass.

    >>> pool_maps(torch.tensor([[[[0.0, 2.0]]]]), "avg+max")
    tensor([[3.]])
    """
    if maps.ndim == 2:
        return maps
    if maps.ndim != 4:
        raise ValueError(f"a backbone must give (B, width, h, w) or (B, width), got {tuple(maps.shape)}")
    if pool == "avg":
        return maps.mean(dim=(2, 3))
    if pool == "max":
        return maps.amax(dim=(2, 3))
    return maps.mean(dim=(2, 3)) + maps.amax(dim=(2, 3))
