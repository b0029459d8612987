"""The base class of backbones."""

from torch import Tensor, nn

from kinfold.data.image_reading import Mode
from kinfold.data.pipelines import Pipeline, create_pipeline


class Backbone(nn.Module):
    """Network from images to features: (B, C, H, W) -> (B, width, h, w), or (B, width) if it pools by itself.

    A new backbone is a subclass that sets `width` and implements `forward`.

    Attributes:
        width: Channels of the features.
        stages: Names of submodules in the order they run, for `get_submodule`. Mixup may mix activations after each.
        pipeline: Pipeline that it was trained with, or its name for `kinfold.data.create_pipeline`; None to take images
            as they are.
        mode: How images are read for it, "RGB" or "L" (gray); None for rows of features.
        weight_file: Description of the weight files that fit, for error messages.
        classifier: Prefixes of keys in such files that belong to a classifier; these are not loaded.
    """

    width: int
    stages: tuple[str, ...] = ()
    pipeline: str | Pipeline | None = None
    mode: Mode | None = "RGB"
    weight_file: str = "its own state_dict()"
    classifier: tuple[str, ...] = ()

    def __init__(self) -> None:
        super().__init__()  # without it a subclass would seem to take any options

    def get_pipeline(self) -> Pipeline | None:
        """Return the pipeline that it was trained with; None where there is none."""
        return create_pipeline(self.pipeline) if isinstance(self.pipeline, str) else self.pipeline

    def get_network(self) -> nn.Module:
        """Return the module that weight files are loaded into: this one, or the network of a library inside it."""
        return self

    def forward(self, images: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} has no forward")
