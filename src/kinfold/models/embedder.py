"""The network that is trained: a backbone, pooling, and a head."""

from typing import Any, Literal, Self, get_args

import torch
from torch import Tensor, nn

from kinfold import registry
from kinfold.models.backbone import Backbone
from kinfold.models.batch_norm import BatchNorm, check_batch_norm, freeze_affine, freeze_statistics

Pool = Literal["avg", "max", "avg+max"]
MemoryFormat = Literal["contiguous", "channels-last"]
_MEMORY_FORMATS = {"contiguous": torch.contiguous_format, "channels-last": torch.channels_last}


class Embedder(nn.Module):
    """Network from images (B, C, H, W), or rows of features (B, d), to embeddings (B, dim), not normalized.

    Args:
        backbone: Network from images to features.
        head: Module from pooled features (B, width) to embeddings (B, dim).
        dim: Dimension of the embeddings.
        pool: Pooling of feature maps: "avg", "max", or "avg+max" for their sum.
        batch_norm: Batch norm of the backbone, also after `train()`. "train" learns. "frozen-statistics" normalizes by
            the running statistics and does not update them; scale and shift learn. "frozen" keeps scale and shift too.

    Attributes:
        memory_format: The order in memory of images and convolution weights; see `set_memory_format`.

    Raises:
        ValueError: `pool` or `batch_norm` is unknown.
    """

    memory_format: MemoryFormat = "contiguous"

    def __init__(
        self, backbone: Backbone, head: nn.Module, dim: int, pool: Pool = "avg", batch_norm: BatchNorm = "train"
    ) -> None:
        super().__init__()
        registry.check_known("pool", pool, get_args(Pool))
        check_batch_norm(batch_norm)
        self.backbone = backbone
        self.head = head
        self.dim = dim
        self.pool = pool
        self.batch_norm = batch_norm
        if batch_norm == "frozen":
            freeze_affine(backbone)
        self.train(self.training)

    def set_memory_format(self, memory_format: MemoryFormat) -> Self:
        """Reorder images and convolution weights in memory; embeddings change by rounding alone.

        Args:
            memory_format: "contiguous", or "channels-last", which is faster for many convolutional networks.

        Returns:
            This network.

        Raises:
            ValueError: `memory_format` is unknown.
        """
        registry.check_known("memory format", memory_format, _MEMORY_FORMATS)
        self.memory_format = memory_format
        self.backbone.to(memory_format=_MEMORY_FORMATS[memory_format])  # type: ignore[call-overload]  # torch's stub
        return self

    def freeze_stages(self, count: int) -> Self:
        """Keep the first stages of the backbone as they are: their parameters need no gradient.

        Args:
            count: Number of stages, in the order of `backbone.stages`; what comes before the first is frozen with it. A
                negative number freezes all but so many of the last ones.

        Returns:
            This network.

        Raises:
            ValueError: The backbone has fewer stages.
        """
        stages = self.backbone.stages
        frozen = count if count >= 0 else len(stages) + count
        if not 0 <= frozen <= len(stages) or (count < 0 and not frozen):
            name = type(self.backbone).__name__
            raise ValueError(f"{name} has {len(stages)} stages, too few for frozen_stages = {count}")
        if frozen:
            names = [name for name, _ in self.backbone.named_modules()]  # in the order in which they run
            stage = stages[frozen - 1]
            end = max(position for position, name in enumerate(names) if f"{name}.".startswith(f"{stage}."))
            for name in names[: end + 1]:
                for parameter in self.backbone.get_submodule(name).parameters(recurse=False):
                    parameter.requires_grad_(False)
        return self

    def features(self, images: Tensor) -> Tensor:
        """Return the pooled features (B, width) of the backbone."""
        if images.dtype == torch.uint8:
            raise ValueError(
                "a network takes normalized numbers, not bytes: model.backbone.get_pipeline().normalize(images) makes "
                "them"
            )
        if self.memory_format == "channels-last" and images.ndim == 4:
            images = images.contiguous(memory_format=torch.channels_last)
        return pool_maps(self.backbone(images), self.pool)

    def forward(self, images: Tensor) -> Any:
        """Return embeddings (B, dim); in training, an ensemble head returns a named tuple with embeddings first."""
        return self.head(self.features(images))

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        if self.batch_norm != "train":
            freeze_statistics(self.backbone)
        return self

    def extra_repr(self) -> str:
        return f"dim={self.dim}, pool={self.pool!r}, batch_norm={self.batch_norm!r}"


def pool_maps(maps: Tensor, pool: Pool) -> Tensor:
    """Pool feature maps (B, width, h, w) to (B, width); features that are already pooled are returned unchanged.

    Examples:
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
