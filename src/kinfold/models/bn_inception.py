"""BN-Inception (Ioffe & Szegedy, 2015) as converted from Caffe, the network of most papers on metric learning.

The keys are those of the published converted weight files (bn_inception-*.pth), so that these can be loaded.
"""

from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from kinfold.models.backbone import Backbone


class InceptionBlock(NamedTuple):
    """Channels of one block: 1 x 1; 3 x 3 and two 3 x 3 in a row, each after a 1 x 1 reduction; pooling and 1 x 1.

    A block that halves the resolution has neither a 1 x 1 branch nor a projection after its pooling.
    """

    name: str
    single: int
    three: tuple[int, int]
    double: tuple[int, int]
    pool: Literal["avg", "max", "halve"]
    projection: int


BLOCKS = (
    InceptionBlock("3a", 64, (64, 64), (64, 96), "avg", 32),
    InceptionBlock("3b", 64, (64, 96), (64, 96), "avg", 64),
    InceptionBlock("3c", 0, (128, 160), (64, 96), "halve", 0),
    InceptionBlock("4a", 224, (64, 96), (96, 128), "avg", 128),
    InceptionBlock("4b", 192, (96, 128), (96, 128), "avg", 128),
    InceptionBlock("4c", 160, (128, 160), (128, 160), "avg", 128),
    InceptionBlock("4d", 96, (128, 192), (160, 192), "avg", 128),
    InceptionBlock("4e", 0, (128, 192), (192, 256), "halve", 0),
    InceptionBlock("5a", 352, (192, 320), (160, 224), "avg", 128),
    InceptionBlock("5b", 352, (192, 320), (192, 224), "max", 128),
)


class BNInception(Backbone):
    """BN-Inception (Ioffe & Szegedy, 2015): (B, 3, H, W) -> (B, 1024, H / 32, W / 32).

    Images are in the order blue, green, red, with values 0..255 minus (104, 117, 128), as the pipeline "bn-inception"
    makes them.

    Examples:
        >>> BNInception().eval()(torch.zeros(1, 3, 64, 64)).shape
        torch.Size([1, 1024, 2, 2])
    """

    width = 1024
    stages = ("pool1_3x3_s2", "pool2_3x3_s2", *(f"inception_{block.name}_output" for block in BLOCKS))
    pipeline = "bn-inception"
    weight_file = "a file with the keys of the converted Caffe weights, such as bn_inception-52deb4733.pth"
    classifier = ("last_linear.", "fc.")

    def __init__(self) -> None:
        super().__init__()
        self._add("conv1_7x7_s2", 3, 64, 7, stride=2)
        self.pool1_3x3_s2 = _create_halving_pool()
        self._add("conv2_3x3_reduce", 64, 64, 1)
        self._add("conv2_3x3", 64, 192, 3)
        self.pool2_3x3_s2 = _create_halving_pool()
        channels = 192
        for block in BLOCKS:
            channels = self._add_block(block, channels)

    def forward(self, images: Tensor) -> Tensor:
        maps: Tensor = self.pool1_3x3_s2(self._run("conv1_7x7_s2", images))
        maps = self._run("conv2_3x3", self._run("conv2_3x3_reduce", maps))
        maps = self.pool2_3x3_s2(maps)
        for block in BLOCKS:
            maps = self._run_block(block, maps)
        return maps

    def _add_block(self, block: InceptionBlock, channels: int) -> int:
        """Add the layers of a block for this many input channels; returns the number of output channels."""
        start = f"inception_{block.name}"
        stride = 2 if block.pool == "halve" else 1
        if block.single:
            self._add(f"{start}_1x1", channels, block.single, 1)
        self._add(f"{start}_3x3_reduce", channels, block.three[0], 1)
        self._add(f"{start}_3x3", *block.three, 3, stride)
        self._add(f"{start}_double_3x3_reduce", channels, block.double[0], 1)
        self._add(f"{start}_double_3x3_1", *block.double, 3)
        self._add(f"{start}_double_3x3_2", block.double[1], block.double[1], 3, stride)
        if block.pool == "avg":
            pool: nn.Module = nn.AvgPool2d(3, stride=1, padding=1)
        else:
            pool = nn.MaxPool2d(3, stride=1, padding=1) if block.pool == "max" else _create_halving_pool()
        self.add_module(f"{start}_pool", pool)
        if block.projection:
            self._add(f"{start}_pool_proj", channels, block.projection, 1)
        self.add_module(f"{start}_output", _Concatenation())
        return block.single + block.three[1] + block.double[1] + (block.projection or channels)

    def _run_block(self, block: InceptionBlock, maps: Tensor) -> Tensor:
        start = f"inception_{block.name}"
        branches = [self._run(f"{start}_1x1", maps)] if block.single else []
        branches.append(self._run(f"{start}_3x3", self._run(f"{start}_3x3_reduce", maps)))
        double = self._run(f"{start}_double_3x3_1", self._run(f"{start}_double_3x3_reduce", maps))
        branches.append(self._run(f"{start}_double_3x3_2", double))
        pooled = self.get_submodule(f"{start}_pool")(maps)
        branches.append(self._run(f"{start}_pool_proj", pooled) if block.projection else pooled)
        output: Tensor = self.get_submodule(f"{start}_output")(branches)
        return output

    def _add(self, name: str, channels: int, width: int, kernel: int, stride: int = 1) -> None:
        # a bias before batch norm is useless, but the weight files have it
        self.add_module(name, nn.Conv2d(channels, width, kernel, stride, padding=kernel // 2))
        self.add_module(f"{name}_bn", nn.BatchNorm2d(width))

    def _run(self, name: str, maps: Tensor) -> Tensor:
        return torch.relu_(self.get_submodule(f"{name}_bn")(self.get_submodule(name)(maps)))


class _Concatenation(nn.Module):
    """Concatenates the branches of a block; a module, so that the output of a block has a name."""

    def forward(self, branches: list[Tensor]) -> Tensor:
        return torch.cat(branches, dim=1)


def _create_halving_pool() -> nn.MaxPool2d:
    return nn.MaxPool2d(3, stride=2, ceil_mode=True)  # Caffe rounds up
