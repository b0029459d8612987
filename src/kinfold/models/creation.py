"""A network by the names of its parts."""

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
    backbone: str = "conv4",
    dim: int = 128,
    head: str = "linear",
    pool: Pool = "avg",
    weights: Path | str | None = None,
    batch_norm: BatchNorm = "train",
    seed: int = 0,
    backbone_options: Mapping[str, Any] | None = None,
    head_options: Mapping[str, Any] | None = None,
) -> Embedder:
    """Make a network: backbone, pooling, head.

    backbone: a name that `kinfold.list("backbones")` shows, or "timm/NAME" or "transformers/NAME" for any other model
        of these libraries
    weights: None draws them from `seed`; the path of a local .safetensors, .pth or .pt file; or "imagenet" (the same as
        "pretrained") for those that a library brings along
    batch_norm: "train", "frozen-statistics" or "frozen"; see `Embedder`

    >>> create("features", dim=2, backbone_options={"width": 4})(torch.zeros(3, 4)).shape
    torch.Size([3, 2])
    """
    check_batch_norm(batch_norm)
    if dim < 1:
        raise ValueError(f"dim must be at least 1, got {dim}")
    published = isinstance(weights, str) and weights in PUBLISHED
    with _seeded(seed, 0):
        body = _backbone(backbone, dict(backbone_options or {}), published)
    if weights is not None and not published:
        load_weights(body, weights)
    with _seeded(seed, 1):  # its own draw: the head starts alike whatever the backbone drew
        top = registry.create("heads", head, width=body.width, dim=dim, **(head_options or {}))
    return Embedder(body, top, dim, pool, batch_norm)


def _backbone(name: str, options: dict[str, Any], published: bool) -> Backbone:
    library, slash, model = name.partition("/")
    if slash and library in LIBRARIES:
        options["model"] = model
        name = library
    if published:
        if "pretrained" not in inspect.signature(registry.resolve("backbones", name)).parameters:
            raise ValueError(f"no library brings weights of {name!r} along; give the path of a local file as weights=")
        options["pretrained"] = True
    made = registry.create("backbones", name, **options)
    if not isinstance(made, Backbone):
        raise ValueError(f"{name!r} is registered as a backbone but makes a {type(made).__name__}")
    return made


@contextmanager
def _seeded(*numbers: int) -> Iterator[None]:
    """torch's initialisers draw from the global generator of the CPU: it is lent to them and given back as it was."""
    before = torch.get_rng_state()
    torch.default_generator.manual_seed(derive_generator(*numbers).initial_seed())
    try:
        yield
    finally:
        torch.set_rng_state(before)
