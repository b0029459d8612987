"""What runs in one process share: decoded images, and features of backbones that are not trained yet.

The workers of a bench train many runs that begin alike. Without this each of them reads all images and passes them
through the same pretrained backbone, to compute its first head and to measure its start. Nothing is kept unless
`keep_results` was called.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from kinfold.data import Dataset, Pipeline
from kinfold.data.fingerprint import compute_fingerprint
from kinfold.data.image_cache import DecodedImages, cache_images
from kinfold.data.image_reading import Mode
from kinfold.distributed import World
from kinfold.embedding.compute import AUTOCAST_TYPES, compute_embeddings
from kinfold.files.checksums import digest_parts
from kinfold.models import Embedder
from kinfold.models.weight_files import digest_weights

Result = TypeVar("Result")


class KeptResults:
    """Results by key, the least recently used ones dropped beyond a limit.

    Args:
        limit: Bytes of all results together; 0 keeps none.
    """

    def __init__(self, limit: int = 0) -> None:
        self.limit = limit
        self._results: OrderedDict[str, tuple[Any, int]] = OrderedDict()

    def get(self, key: str, compute: Callable[[], Result], count_bytes: Callable[[Result], int]) -> Result:
        """Return the result of this key; computed where it is not kept. Callers do not change it."""
        if key in self._results:
            self._results.move_to_end(key)
            result: Result = self._results[key][0]
            return result
        result = compute()
        size = count_bytes(result)
        if size <= self.limit:
            self._results[key] = (result, size)
        while sum(each for _, each in self._results.values()) > self.limit:
            self._results.popitem(last=False)
        return result


_process_results = KeptResults()


def keep_results(limit: int = 1 << 30) -> None:
    """Keep shared results in this process from now on.

    Args:
        limit: Bytes; 0 stops keeping them.
    """
    global _process_results
    _process_results = KeptResults(limit)


def cache_images_once(dataset: Dataset, short_side: int | None, mode: Mode, workers: int, background: str) -> Dataset:
    """Decode all images of a dataset into memory, as `kinfold.data.cache_images` does."""

    def compute() -> Dataset:
        return cache_images(dataset, short_side, mode, workers=workers, background=background)[0]

    if not _process_results.limit:
        return compute()
    key = digest_parts([compute_fingerprint(dataset, full=True), repr((dataset.name, short_side, mode, background))])
    cached = _process_results.get(f"images {key}", compute, _count_pixels)
    return replace(dataset, items=cached.items)


def compute_features(model: Embedder, dataset: Dataset, pipeline: Pipeline | None, **options: Any) -> Tensor:
    """Compute `model.features` of all items, (N, width).

    Args:
        model: A network that is not trained yet.
        dataset: The items.
        pipeline: How images are prepared; None for features.
        options: Those of `compute_embeddings`.
    """

    def compute() -> Tensor:
        return compute_embeddings(model, dataset, pipeline, function=model.features, **options)

    world = options.get("world") or World.current()
    if not _process_results.limit or pipeline is None or world.size > 1:
        return compute()
    device, precision = str(options.get("device", "cpu")), options.get("precision", "float32")
    how = (model.pool, model.batch_norm, model.memory_format, torch.get_num_threads())
    named = (options.get("batch_size", 256), device, precision)
    preparation = (pipeline.test, pipeline.normalize, pipeline.mode, pipeline.background)
    key = digest_parts(
        [
            type(model.backbone).__qualname__,
            digest_weights(model.backbone.state_dict()),
            compute_fingerprint(dataset, full=True),
            repr((how, named, preparation)),
        ]
    )
    return _process_results.get(f"features {key}", compute, lambda rows: rows.numel() * rows.element_size())


def embed_untrained(
    model: Embedder, dataset: Dataset, pipeline: Pipeline | None, *, batch_size: int, precision: str
) -> Tensor:
    """Embed a dataset with a network that is not trained yet, (N, dim); to the bit the same as `compute_embeddings`."""
    options: dict[str, Any] = {"batch_size": batch_size, "precision": precision}
    if not _process_results.limit or pipeline is None or AUTOCAST_TYPES.get(precision) is not None:
        return compute_embeddings(model, dataset, pipeline, **options)
    features = compute_features(model, dataset, pipeline, **options)
    model.eval()
    # in the batches of `compute_embeddings`, since the rounding of a product may depend on its size
    with torch.no_grad():
        return torch.cat([model.head(rows) for rows in torch.split(features, batch_size)])


def _count_pixels(dataset: Dataset) -> int:
    assert isinstance(dataset.items, DecodedImages)
    return dataset.items.nbytes
