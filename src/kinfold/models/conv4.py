"""conv4: a small network for small gray images, such as glyphs and handwritten characters."""

import torch
from torch import Tensor, nn

from kinfold.models.backbone import Backbone


class Conv4(Backbone):
    """Four blocks of 3 x 3 convolution, batch norm and ReLU: (B, channels, H, W) -> (B, width, H / 8, W / 8).

    The channels double from block to block, and the first three blocks halve the resolution, so that most of the work
    is done at a low resolution.

    Args:
        channels: Channels of the images: 1 (gray) or 3 (color).
        width: Channels of the features, a multiple of 8.

    Raises:
        ValueError: `channels` or `width` is invalid.

    Examples:
        >>> Conv4(width=64).eval()(torch.zeros(2, 1, 28, 28)).shape
        torch.Size([2, 64, 3, 3])
    """

    stages = ("block1", "block2", "block3", "block4")

    def __init__(self, channels: int = 1, width: int = 256) -> None:
        super().__init__()
        if channels not in (1, 3):
            raise ValueError(f"channels must be 1 (gray) or 3 (color), got {channels}")
        if width < 8 or width % 8:
            raise ValueError(f"width must be a multiple of 8, got {width}")
        self.channels = channels
        self.width = width
        self.mode = "L" if channels == 1 else "RGB"
        self.pipeline = "small-grey" if channels == 1 else "small-color"
        self.block1 = _create_block(channels, width // 8, nn.MaxPool2d(2))
        self.block2 = _create_block(width // 8, width // 4, nn.MaxPool2d(2))
        self.block3 = _create_block(width // 4, width // 2, nn.MaxPool2d(2))
        self.block4 = _create_block(width // 2, width)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # a third faster on a CPU

    def forward(self, images: Tensor) -> Tensor:
        if images.ndim != 4 or images.shape[1] != self.channels:
            raise ValueError(f"expected images of shape (B, {self.channels}, H, W), got {tuple(images.shape)}")
        if min(images.shape[2:]) < 8:
            raise ValueError(f"expected images of at least 8 x 8 pixels, got {images.shape[2]} x {images.shape[3]}")
        maps = images.contiguous(memory_format=torch.channels_last)
        for stage in self.stages:
            maps = self.get_submodule(stage)(maps)
        return maps


def _create_block(channels: int, width: int, *pool: nn.Module) -> nn.Sequential:
    convolution = nn.Conv2d(channels, width, 3, padding=1, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(width), nn.ReLU(inplace=True), *pool)
