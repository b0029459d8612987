"""Embeddings of a whole data set in memory, by all ranks together."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from kinfold.data import Batches, Dataset, Pipeline
from kinfold.data.image_reading import BACKGROUND
from kinfold.data.loading import SequentialBatches
from kinfold.distributed import World
from kinfold.training.step import PRECISIONS


@torch.no_grad()
def compute_embeddings(
    model: nn.Module,
    dataset: Dataset,
    pipeline: Pipeline | None = None,
    *,
    batch_size: int = 256,
    device: torch.device | str = "cpu",
    precision: str = "float32",
    workers: int = 0,
    ranks: World | None = None,
    of: Callable[[Tensor], Tensor] | None = None,
    progress: Callable[[str, float], None] | None = None,
) -> Tensor:
    """(N, d) on the CPU, in the order of the data set, float32 (float64 in that precision).

    The model is put into evaluation mode and left in the mode it was in. `of` is what is called instead of the model,
    such as its `features`. Each rank embeds a stretch, and all end with the whole.
    """
    ranks = World.current() if ranks is None else ranks
    device = torch.device(device)
    dtype = torch.float64 if precision == "float64" else torch.float32
    if len(dataset) < ranks.size:  # not one for each: every rank embeds them all
        ranks = World()
    first, last = ranks.rank * len(dataset) // ranks.size, (ranks.rank + 1) * len(dataset) // ranks.size
    reading = Batches(
        dataset,
        None if pipeline is None else pipeline.test,
        None if pipeline is None else pipeline.normalize,
        batch_sampler=SequentialBatches(first, last, batch_size),
        workers=workers,
        mode="RGB" if pipeline is None else pipeline.mode,
        background=BACKGROUND if pipeline is None else pipeline.background,
    )
    half = PRECISIONS.get(precision)
    was_training = model.training
    model.eval()
    parts: list[Tensor] = []
    try:
        for done, batch in enumerate(reading, start=1):
            with torch.autocast(device.type, dtype=half, enabled=half is not None):
                found = (of or model)(batch.images.to(device).to(dtype))
            parts.append(found.to("cpu", dtype))
            if progress is not None:
                progress("embed", done / len(reading))
    finally:
        model.train(was_training)
    own = torch.cat(parts) if parts else torch.zeros(0, 0, dtype=dtype)
    return ranks.gather(own)
