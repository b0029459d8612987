"""A backbone from a module that is passed in Python."""

import copy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from kinfold.models.backbone import Backbone
from kinfold.models.image_processors import read_pipeline
from kinfold.models.transformers_models import choose_output, get_features, list_blocks
from kinfold.optional import import_optional

_TRIED_SIZES = (224, 32)


class ModuleBackbone(Backbone):
    """Any module from normalized images (B, 3, H, W) to features (B, width), maps (B, width, h, w) or tokens.

    Of a model of transformers the pooled output is taken, or the first token, as in "transformers/NAME". Of tokens the
    first is taken. A copy of the module is trained; the one that is passed stays as it is.

    Args:
        module: The module. Leave its classifier out, as with `model.fc = torch.nn.Identity()`.

    Raises:
        ValueError: The module does not give features of an image.
    """

    weight_file = "the state_dict() of that module"

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.network = copy.deepcopy(module)
        self.output = choose_output(self.network)
        self.stages = list_blocks(self.network)
        self.width = self._find_width()
        folder = getattr(module, "name_or_path", "")
        if isinstance(folder, str) and folder and Path(folder).is_dir():
            library = import_optional("transformers", "transformers", "transformers", "a model of transformers")
            self.pipeline = read_pipeline(library, folder)

    def get_network(self) -> nn.Module:
        return self.network

    def forward(self, images: Tensor) -> Tensor:
        return get_features(self.network(images), self.output)

    def _find_width(self) -> int:
        """Width of the features of a black image."""
        like = next(self.network.parameters(), torch.zeros(0))
        was_training = self.network.training
        self.network.eval()
        problem: Exception | None = None
        size = getattr(getattr(self.network, "config", None), "image_size", None)
        for side in (size,) if isinstance(size, int) else _TRIED_SIZES:
            try:
                with torch.no_grad():
                    features = self(torch.zeros(1, 3, side, side, dtype=like.dtype, device=like.device))
                if features.ndim not in (2, 4):
                    raise ValueError(f"it gives {tuple(features.shape)}")
                return int(features.shape[1])
            except Exception as error:  # a module of anybody raises anything
                problem = error
            finally:
                self.network.train(was_training)
        raise ValueError(
            f"{type(self.network).__name__} does not map images (B, 3, H, W) to features (B, width) or maps (B, width, "
            f"h, w): {problem}"
        ) from None


def wrap_module(module: Any) -> Backbone:
    """Return a module as a backbone; a `Backbone` is returned unchanged.

    Raises:
        ValueError: It is no torch module.
    """
    if isinstance(module, Backbone):
        return module
    if not isinstance(module, nn.Module):
        raise ValueError(
            f"backbone= takes a torch module, got {type(module).__name__}; a registered name belongs in the recipe, as "
            "in changes=['model.backbone=resnet50']"
        )
    return ModuleBackbone(module)
