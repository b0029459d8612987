"""DenseNet-201 and GoogLeNet from torchvision, or from timm if torchvision cannot be imported."""

import importlib
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from kinfold.models.backbone import Backbone
from kinfold.models.timm_models import TimmBackbone


@dataclass(frozen=True)
class NetworkLayout:
    """How a torchvision network computes its last feature map."""

    width: int
    steps: tuple[str, ...]  # children, run one after another
    stages: tuple[str, ...]
    pipeline: str
    classifier: tuple[str, ...]
    options: dict[str, Any]  # without published weights


_DENSE = ("pool0", "transition1", "transition2", "transition3", "norm5")
_INCEPTION = ("3a", "3b", "4a", "4b", "4c", "4d", "4e", "5a", "5b")
_GOOGLE = ("conv1", "maxpool1", "conv2", "conv3", "maxpool2", "inception3a", "inception3b", "maxpool3", "inception4a")
_GOOGLE_END = ("inception4b", "inception4c", "inception4d", "inception4e", "maxpool4", "inception5a", "inception5b")

LAYOUTS = {
    "densenet201": NetworkLayout(
        width=1920,
        steps=("features",),
        stages=tuple(f"features.{layer}" for layer in _DENSE),
        pipeline="study",
        classifier=("classifier.",),
        options={},
    ),
    "googlenet": NetworkLayout(
        width=1024,
        steps=(*_GOOGLE, *_GOOGLE_END),
        stages=("maxpool1", "maxpool2", *(f"inception{block}" for block in _INCEPTION)),
        pipeline="study-googlenet",
        classifier=("fc.", "aux1.", "aux2."),
        # its own initialization is slow, and drew from numpy's global generator in older versions
        options={"aux_logits": False, "init_weights": False},
    ),
}


class TorchvisionBackbone(Backbone):
    """A network of torchvision up to its last feature map, for images normalized like ImageNet.

    Args:
        name: A key of `LAYOUTS`.
        library: The module torchvision.models.
        pretrained: Take torchvision's ImageNet weights, which torchvision downloads.
    """

    def __init__(self, name: str, library: Any, pretrained: bool = False) -> None:
        super().__init__()
        layout = LAYOUTS[name]
        self.width = layout.width
        self.pipeline = layout.pipeline
        self.stages = tuple(f"network.{stage}" for stage in layout.stages)
        self.weight_file = f"a file with the keys of torchvision's {name}"
        self.classifier = layout.classifier
        self.name = name
        options = {"weights": "IMAGENET1K_V1"} if pretrained else {"weights": None, **layout.options}
        self.network: nn.Module = getattr(library, name)(**options)
        for entry in layout.classifier:
            setattr(self.network, entry.rstrip("."), None)

    def get_network(self) -> nn.Module:
        return self.network

    def forward(self, images: Tensor) -> Tensor:
        maps = convert_to_tensorflow_range(images) if self.name == "googlenet" else images
        for step in LAYOUTS[self.name].steps:
            maps = self.network.get_submodule(step)(maps)
        return torch.relu(maps)  # DenseNet's features lack their last ReLU; it does not change the others


def convert_to_tensorflow_range(images: Tensor) -> Tensor:
    """Convert images from ImageNet normalization to (x - 0.5) / 0.5, with which the published GoogLeNet was trained.

    Examples:
        >>> convert_to_tensorflow_range(torch.zeros(1, 3, 1, 1)).flatten()
        tensor([-0.0300, -0.0880, -0.1880])
    """
    mean = images.new_tensor([0.485, 0.456, 0.406])[:, None, None]
    deviation = images.new_tensor([0.229, 0.224, 0.225])[:, None, None]
    return (images * deviation + mean - 0.5) / 0.5


def densenet201(pretrained: bool = False) -> Backbone:
    """Create DenseNet-201 (Huang et al., CVPR 2017), 1920 features; the second network of the Prec@k paper.

    Args:
        pretrained: Take the ImageNet weights of torchvision (or timm), which it downloads.

    Raises:
        ImportError: Neither torchvision nor timm can be imported.
    """
    return _create("densenet201", pretrained)


def googlenet(pretrained: bool = False) -> Backbone:
    """Create GoogLeNet (Szegedy et al., CVPR 2015), 1024 features; Roth et al. compare it with other architectures.

    Args:
        pretrained: Take the ImageNet weights of torchvision (or timm), which it downloads.

    Raises:
        ImportError: Neither torchvision nor timm can be imported.
    """
    return _create("googlenet", pretrained)


def _create(name: str, pretrained: bool) -> Backbone:
    try:
        library = importlib.import_module("torchvision.models")
    except (ImportError, RuntimeError):  # RuntimeError: torchvision does not fit the installed torch
        try:
            return TimmBackbone(name, pretrained)
        except ImportError:
            raise ImportError(
                f"{name} comes from torchvision or timm, and neither can be imported: pip install torchvision "
                "(of the version that fits the installed torch)"
            ) from None
    return TorchvisionBackbone(name, library, pretrained)
