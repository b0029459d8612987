"""Embeddings of a whole dataset in memory, computed by all processes together."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from kinfold.data import Batches, Dataset, Pipeline
from kinfold.data.image_reading import BACKGROUND
from kinfold.data.loading import SequentialBatches
from kinfold.distributed import World

AUTOCAST_TYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}
"""Precisions in which a network runs under autocast."""


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
    world: World | None = None,
    function: Callable[[Tensor], Tensor] | None = None,
    progress: Callable[[str, float], None] | None = None,
) -> Tensor:
    """Compute the embeddings of a dataset in evaluation mode.

    Each process embeds a part of the items, and all return the whole.

    Args:
        model: The network; it is left in the mode that it was in.
        dataset: The items.
        pipeline: How images are prepared; None for features.
        batch_size: Items at a time.
        device: Where the network is.
        precision: "float32", "bfloat16", "float16" or "float64".
        workers: Processes that read images.
        world: The processes that embed together; by default those of torch.distributed.
        function: Called instead of the model, such as its `features`.
        progress: Called with a stage and the share that is finished.

    Returns:
        (N, d) on the CPU, in the order of the dataset; float32, or float64 in that precision.
    """
    world = World.current() if world is None else world
    device = torch.device(device)
    dtype = torch.float64 if precision == "float64" else torch.float32
    if len(dataset) < world.size:  # too few for each to have one: every process embeds them all
        world = World()
    start, end = world.rank * len(dataset) // world.size, (world.rank + 1) * len(dataset) // world.size
    batches = Batches(
        dataset,
        None if pipeline is None else pipeline.test,
        None if pipeline is None else pipeline.normalize,
        batch_sampler=SequentialBatches(start, end, batch_size),
        workers=workers,
        mode="RGB" if pipeline is None else pipeline.mode,
        background=BACKGROUND if pipeline is None else pipeline.background,
    )
    half = AUTOCAST_TYPES.get(precision)
    was_training = model.training
    model.eval()
    chunks: list[Tensor] = []
    try:
        for number, batch in enumerate(batches, start=1):
            with torch.autocast(device.type, dtype=half, enabled=half is not None):
                embeddings = (function or model)(batch.images.to(device).to(dtype))
            chunks.append(embeddings.to("cpu", dtype))
            if progress is not None:
                progress("embed", number / len(batches))
    finally:
        model.train(was_training)
    return world.gather(torch.cat(chunks) if chunks else torch.zeros(0, 0, dtype=dtype))
