"""ResNet-50 (He et al., 2016) with the keys of torchvision's weight files, as the ICML 2020 study used it."""

import torch
from torch import Tensor, nn

from kinfold.models.backbone import Backbone

EXPANSION = 4  # output channels of a bottleneck, as a multiple of its inner channels
LAYERS = ((64, 3), (128, 4), (256, 6), (512, 3))  # inner channels, blocks


class ResNet50(Backbone):
    """ResNet-50 (He et al., CVPR 2016): (B, 3, H, W), normalized like ImageNet -> (B, 2048, H / 32, W / 32).

    The stride is in the 3 x 3 convolution of a bottleneck, as in the published PyTorch weights; in the paper it is in
    the 1 x 1 convolution before it.

    Examples:
        >>> ResNet50().eval()(torch.zeros(1, 3, 64, 64)).shape
        torch.Size([1, 2048, 2, 2])
    """

    width = 512 * EXPANSION
    stages = ("maxpool", "layer1", "layer2", "layer3", "layer4")
    pipeline = "study"
    weight_file = "a file with the keys of torchvision's resnet50-*.pth"
    classifier = ("fc.",)

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        channels = 64
        for number, (inside, blocks) in enumerate(LAYERS, start=1):
            first = BottleneckBlock(channels, inside, stride=1 if number == 1 else 2)
            channels = inside * EXPANSION
            rest = [BottleneckBlock(channels, inside) for _ in range(blocks - 1)]
            self.add_module(f"layer{number}", nn.Sequential(first, *rest))
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):  # He initialization
                nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        maps: Tensor = torch.relu_(self.bn1(self.conv1(images)))
        for stage in self.stages:
            maps = self.get_submodule(stage)(maps)
        return maps


class BottleneckBlock(nn.Module):
    """A residual block: 1 x 1 convolution to `inside` channels, 3 x 3, 1 x 1 to four times as many."""

    def __init__(self, channels: int, inside: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, inside, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(inside)
        self.conv2 = nn.Conv2d(inside, inside, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(inside)
        self.conv3 = nn.Conv2d(inside, inside * EXPANSION, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(inside * EXPANSION)
        self.downsample: nn.Module | None = None
        if stride != 1 or channels != inside * EXPANSION:
            self.downsample = nn.Sequential(
                nn.Conv2d(channels, inside * EXPANSION, 1, stride=stride, bias=False),
                nn.BatchNorm2d(inside * EXPANSION),
            )

    def forward(self, maps: Tensor) -> Tensor:
        inner = torch.relu_(self.bn1(self.conv1(maps)))
        inner = torch.relu_(self.bn2(self.conv2(inner)))
        inner = self.bn3(self.conv3(inner))
        return torch.relu_(inner + (maps if self.downsample is None else self.downsample(maps)))
