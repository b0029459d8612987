"""What embeds the items of a dataset: a trained run, a backbone, or plain pixels."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor, nn

from kinfold import models
from kinfold.data import Dataset, Pipeline, Warp
from kinfold.data.image_reading import BACKGROUND
from kinfold.data.pipelines import adjust_pipeline
from kinfold.files.checksums import digest_files, digest_parts


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


def fingerprint_run(run: EmbeddingRun) -> str:
    """Return the fingerprint of the weights and the test transform of a run: 32 hexadecimal digits.

    Embeddings with equal fingerprints can be compared with each other. A copy of the run has the same one.

    Raises:
        ValueError: The run has no weights yet.
    """
    files = run.weight_files()
    if not files:
        raise ValueError(f"{run.folder} has no weights yet")
    return _fingerprint(f"run {digest_files(files)} {run.distance}", run.pipeline)


def _fingerprint(model: str, pipeline: Pipeline | None) -> str:
    if pipeline is None:
        return digest_parts([model])
    return digest_parts([model, repr((pipeline.test, pipeline.normalize, pipeline.mode, pipeline.background))])


@dataclass(frozen=True)
class Encoder:
    """A function from images or features to embeddings, with how its input is prepared.

    Args:
        model: Maps a batch of images (B, C, H, W), or features (B, d), to embeddings (B, dim).
        pipeline: How images are prepared; None for features.
        description: What the embeddings depend on, such as the name of the model and the checksum of its weights.
        fingerprint: The fingerprint of model and transform; embeddings with different ones are never compared.
    """

    model: Callable[[Tensor], Tensor]
    pipeline: Pipeline | None
    description: dict[str, Any]
    fingerprint: str | None = None

    @staticmethod
    def from_run(run: EmbeddingRun) -> "Encoder":
        """Return the network of a run, or all networks of a repeat side by side.

        Raises:
            ValueError: The run has no weights yet.
        """
        description = {"run": str(run.folder), "weights": digest_files(run.weight_files())}
        return Encoder(run.model(), run.pipeline, description, fingerprint_run(run))

    @staticmethod
    def from_backbone(
        name: str,
        weights: str | None = None,
        *,
        width: int | None = None,
        background: str = BACKGROUND,
        size: int | None = None,
    ) -> "Encoder":
        """Return the features of a backbone without a head.

        Args:
            name: A name of `kinfold.list("backbones")`.
            weights: A weight file, or "imagenet".
            width: Width of the features, for the backbone "features".
            background: Color under transparent pixels.
            size: Width and height of the images that the backbone gets; those of its own pipeline if left out.

        Raises:
            ValueError: The backbone takes images and has no pipeline.
        """
        network = models.create(name, weights=weights, backbone_options=None if width is None else {"width": width})
        pipeline = network.backbone.get_pipeline()
        if pipeline is None and network.backbone.mode is not None:
            raise ValueError(
                f"the backbone {name} has no image pipeline of its own; train a run with data.pipeline set"
            )
        prepared = None if pipeline is None else replace(adjust_pipeline(pipeline, size), background=background)
        digest = "" if weights is None or not Path(weights).is_file() else digest_files([Path(weights)])
        fingerprint = _fingerprint(f"backbone {name} {digest or weights}", prepared)
        return Encoder(
            network.eval().features, prepared, {"backbone": name, "weights": weights, "size": size}, fingerprint
        )

    @staticmethod
    def from_pixels(size: int = 28, gray: bool = False, background: str = BACKGROUND) -> "Encoder":
        """Return the pixels themselves as embedding.

        Args:
            size: Images are resized to this width and height.
            gray: Gray instead of color.
            background: Color under transparent pixels.
        """
        pipeline = Pipeline(Warp(size), Warp(size), None, "L" if gray else "RGB", background)
        description = {"backbone": "pixels", "size": size, "gray": gray}
        return Encoder(flatten_pixels, pipeline, description, _fingerprint("pixels", pipeline))


def flatten_pixels(images: Tensor) -> Tensor:
    """Return pixel values between 0 and 1 as embeddings, (B, C * H * W)."""
    return images.float().div(255.0).flatten(1)
