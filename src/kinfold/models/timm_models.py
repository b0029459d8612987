"""Any image model of timm by its name."""

import importlib

from torch import Tensor, nn

from kinfold.data import IMAGENET
from kinfold.models.backbone import Backbone


class TimmBackbone(Backbone):
    """A model of timm without its classifier.

    A network with feature maps returns these, (B, width, h, w), and the embedder pools them. Any other network, such as
    a transformer, pools by itself as it was trained to.

    Args:
        model: Name of the model in timm.
        pretrained: Take timm's weights, which timm downloads.

    Raises:
        ImportError: timm cannot be imported.
        ValueError: timm has no such model.
    """

    def __init__(self, model: str, pretrained: bool = False) -> None:
        super().__init__()
        try:
            timm = importlib.import_module("timm")
        except (ImportError, RuntimeError) as error:  # RuntimeError: torchvision does not fit the installed torch
            raise ImportError(
                f'timm/{model} needs timm, which cannot be imported ({error}): pip install "kinfold[timm]"'
            ) from None
        try:
            self.network: nn.Module = timm.create_model(model, pretrained=pretrained, num_classes=0)
        except RuntimeError as error:
            raise ValueError(f"timm cannot make {model!r}: {error}; timm.list_models() shows its names") from None
        self.width = int(self.network.num_features)
        settings = getattr(self.network, "default_cfg", {})
        same = (settings.get("mean"), settings.get("std")) == (IMAGENET.mean, IMAGENET.std)
        self.pipeline = "study" if same else None
        self.weight_file = f"a file with the keys of timm's {model}"
        self.classifier = tuple(f"{layer}." for layer in _to_tuple(settings.get("classifier")))

    def get_network(self) -> nn.Module:
        return self.network

    def forward(self, images: Tensor) -> Tensor:
        maps: Tensor = self.network.forward_features(images)  # type: ignore[operator]  # a method of timm's models
        if maps.ndim == 4 and maps.shape[1] == self.width:
            return maps
        pooled: Tensor = self.network.forward_head(maps, pre_logits=True)  # type: ignore[operator]
        return pooled


def _to_tuple(names: str | tuple[str, ...] | None) -> tuple[str, ...]:
    return () if names is None else (names,) if isinstance(names, str) else tuple(names)
