"""What embeds the items of a dataset: a trained run, a backbone, or plain pixels."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor, nn

from kinfold import models
from kinfold.data import Dataset, Pipeline, Warp, create_pipeline
from kinfold.data.image_reading import BACKGROUND
from kinfold.files.checksums import digest_files


class EmbeddingRun(Protocol):
    """What this package uses of a `kinfold.training.Run` or of a repeat of a bench."""

    @property
    def folder(self) -> Path: ...
    @property
    def pipeline(self) -> Pipeline | None: ...
    @property
    def distance(self) -> Any: ...
    def model(self) -> nn.Module: ...
    def weight_files(self) -> list[Path]: ...
    def list_visible_splits(self) -> dict[str, Dataset]: ...
    def data(self, split: str = "test") -> Dataset: ...
    def embed(self, things: Any, progress: Callable[[str, float], None] | None = None) -> Tensor: ...


@dataclass(frozen=True)
class Encoder:
    """A function from images or features to embeddings, with how its input is prepared.

    Args:
        model: Maps a batch of images (B, C, H, W), or features (B, d), to embeddings (B, dim).
        pipeline: How images are prepared; None for features.
        description: What the embeddings depend on, such as the name of the model and the checksum of its weights.
    """

    model: Callable[[Tensor], Tensor]
    pipeline: Pipeline | None
    description: dict[str, Any]

    @staticmethod
    def from_run(run: EmbeddingRun) -> "Encoder":
        """Return the network of a run, or all networks of a repeat side by side.

        Raises:
            ValueError: The run has no weights yet.
        """
        description = {"run": str(run.folder), "weights": digest_files(run.weight_files())}
        return Encoder(run.model(), run.pipeline, description)

    @staticmethod
    def from_backbone(
        name: str, weights: str | None = None, *, width: int | None = None, background: str = BACKGROUND
    ) -> "Encoder":
        """Return the features of a backbone without a head.

        Args:
            name: A name of `kinfold.list("backbones")`.
            weights: A weight file, or "imagenet".
            width: Width of the features, for the backbone "features".
            background: Color under transparent pixels.
        """
        network = models.create(name, weights=weights, backbone_options=None if width is None else {"width": width})
        pipeline = network.backbone.pipeline
        prepared = None if pipeline is None else replace(create_pipeline(pipeline), background=background)
        return Encoder(network.eval().features, prepared, {"backbone": name, "weights": weights})

    @staticmethod
    def from_pixels(size: int = 28, gray: bool = False, background: str = BACKGROUND) -> "Encoder":
        """Return the pixels themselves as embedding.

        Args:
            size: Images are resized to this width and height.
            gray: Gray instead of color.
            background: Color under transparent pixels.
        """
        pipeline = Pipeline(Warp(size), Warp(size), None, "L" if gray else "RGB", background)
        return Encoder(flatten_pixels, pipeline, {"backbone": "pixels", "size": size, "grey": gray})


def flatten_pixels(images: Tensor) -> Tensor:
    """Return pixel values between 0 and 1 as embeddings, (B, C * H * W)."""
    return images.float().div(255.0).flatten(1)
