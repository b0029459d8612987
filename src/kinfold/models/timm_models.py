"""Any image model of timm by its name."""

import importlib

from torch import Tensor, nn

from kinfold.data import IMAGENET
from kinfold.models.backbone import Backbone


class TimmBackbone(Backbone):
    """The model of that name in timm without its classifier.

    A network with feature maps gives these, (B, width, h, w), for the pooling of the embedder; any other, such as a
    transformer, pools by itself, in the way it was trained with. `pretrained` takes timm's weights, which it downloads.
    """

    def __init__(self, model: str, pretrained: bool = False) -> None:
        super().__init__()
        try:
            timm = importlib.import_module("timm")
        except (ImportError, RuntimeError) as problem:  # RuntimeError: a torchvision that does not fit the torch
            raise ImportError(
                f'timm/{model} needs timm, which cannot be imported ({problem}): pip install "kinfold[timm]"'
            ) from None
        try:
            self.network: nn.Module = timm.create_model(model, pretrained=pretrained, num_classes=0)
        except RuntimeError as problem:
            raise ValueError(f"timm cannot make {model!r}: {problem}; timm.list_models() shows its names") from None
        self.width = int(self.network.num_features)
        settings = getattr(self.network, "default_cfg", {})
        same = (settings.get("mean"), settings.get("std")) == (IMAGENET.mean, IMAGENET.std)
        self.pipeline = "study" if same else None
        self.weight_file = f"a file with the keys of timm's {model}"
        self.classifier = tuple(f"{layer}." for layer in _names(settings.get("classifier")))

    def get_network(self) -> nn.Module:
        return self.network

    def forward(self, images: Tensor) -> Tensor:
        maps: Tensor = self.network.forward_features(images)  # type: ignore[operator]  # a method of timm's models
        if maps.ndim == 4 and maps.shape[1] == self.width:
            return maps
        pooled: Tensor = self.network.forward_head(maps, pre_logits=True)  # type: ignore[operator]
        return pooled


def _names(found: str | tuple[str, ...] | None) -> tuple[str, ...]:
    return () if found is None else (found,) if isinstance(found, str) else tuple(found)
