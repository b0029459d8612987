"""Creation of networks by the names of their parts."""

import copy
import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from kinfold import registry
from kinfold.models.backbone import Backbone
from kinfold.models.batch_norm import BatchNorm, check_batch_norm
from kinfold.models.embedder import Embedder, Pool
from kinfold.models.weight_files import load_weights
from kinfold.seeding import derive_generator

PUBLISHED = ("imagenet", "pretrained")
LIBRARIES = ("timm", "transformers")  # "timm/NAME" is the model NAME of timm


def create(
    backbone: str | Backbone = "conv4",
    dim: int = 128,
    head: str = "linear",
    pool: Pool = "avg",
    weights: Path | str | None = None,
    batch_norm: BatchNorm = "train",
    seed: int = 0,
    backbone_options: Mapping[str, Any] | None = None,
    head_options: Mapping[str, Any] | None = None,
) -> Embedder:
    """Create a network: backbone, pooling, head.

    Args:
        backbone: One of `kinfold.list("backbones")`, or "timm/NAME" or "transformers/NAME" for any other model of these
            libraries. A backbone that was created already is copied.
        dim: Dimension of the embeddings.
        head: One of `kinfold.list("heads")`.
        pool: Pooling of feature maps: "avg", "max", or "avg+max" for their sum.
        weights: Weights of the backbone. None draws them from `seed`; the path of a .safetensors, .pth or .pt file
            loads them; "imagenet" or "pretrained" takes the weights of the library that the backbone comes from.
        batch_norm: "train", "frozen-statistics" or "frozen"; see `Embedder`.
        seed: Seed of the initial weights.
        backbone_options: Options of the backbone.
        head_options: Options of the head.

    Returns:
        The network, with images or rows of features as input.

    Raises:
        ValueError: A name, an option or a weight file is invalid.
        ImportError: The backbone needs a library that is not installed.

    Examples:
        >>> create("features", dim=2, backbone_options={"width": 4})(torch.zeros(3, 4)).shape
        torch.Size([3, 2])
    """
    check_batch_norm(batch_norm)
    if dim < 1:
        raise ValueError(f"dim must be at least 1, got {dim}")
    published = isinstance(weights, str) and weights in PUBLISHED
    if isinstance(backbone, Backbone):
        if weights is not None or backbone_options:
            raise ValueError("a backbone that is passed has its own weights and options: leave weights and options out")
        body = copy.deepcopy(backbone)
    else:
        with use_seed(seed, 0):
            body = _create_backbone(backbone, dict(backbone_options or {}), published)
        if weights is not None and not published:
            load_weights(body, weights)
    with use_seed(seed, 1):  # another seed: the head starts the same with every backbone
        top = registry.create("heads", head, width=body.width, dim=dim, **(head_options or {}))
    return Embedder(body, top, dim, pool, batch_norm)


def _create_backbone(name: str, options: dict[str, Any], published: bool) -> Backbone:
    library, slash, model = name.partition("/")
    if slash and library in LIBRARIES:
        options["model"] = model
        name = library
    if published:
        if "pretrained" not in inspect.signature(registry.resolve("backbones", name)).parameters:
            raise ValueError(f"no library provides weights of {name!r}; give the path of a local file as weights=")
        options["pretrained"] = True
    backbone = registry.create("backbones", name, **options)
    if not isinstance(backbone, Backbone):
        raise ValueError(f"{name!r} is registered as a backbone but makes a {type(backbone).__name__}")
    return backbone


@contextmanager
def use_seed(*numbers: int) -> Iterator[None]:
    """Seed the global generator of the CPU, from which torch draws initial weights, and restore it afterwards."""
    before = torch.get_rng_state()
    torch.default_generator.manual_seed(derive_generator(*numbers).initial_seed())
    try:
        yield
    finally:
        torch.set_rng_state(before)
