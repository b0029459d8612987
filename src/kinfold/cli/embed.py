"""`kinfold embed`: a feature file from the items of a data set, by a trained run, a backbone or plain pixels."""

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kinfold.cli.datasets import Changes, load
from kinfold.cli.plugins import Plugins
from kinfold.cli.runs import SPLIT_HELP, split_of, used
from kinfold.cli.terminal import echo

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from kinfold.data import Dataset, Pipeline


def embed(
    name: Annotated[
        str, typer.Argument(help="A name that `kinfold list datasets` shows, or the folder of a run or a repeat.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The .npz file to write.")],
    root: Annotated[Path | None, typer.Option(help="The folder of the data set, or the file of a table.")] = None,
    changes: Changes = None,
    split: Annotated[str | None, typer.Option(help=f"{SPLIT_HELP} Of a data set: only this one.")] = None,
    run: Annotated[
        Path | None, typer.Option(help="The folder of the run, or of the repeat of a bench, that embeds.")
    ] = None,
    backbone: Annotated[
        str | None, typer.Option(help="A backbone that embeds as it is, or `pixels`; `kinfold list backbones`.")
    ] = None,
    weights: Annotated[str | None, typer.Option(help="Of the backbone: a file, or `imagenet`.")] = None,
    size: Annotated[int, typer.Option(help="`pixels`: images become this many pixels wide and high.")] = 28,
    grey: Annotated[bool, typer.Option(help="`pixels`: grey instead of colour.")] = False,
    background: Annotated[
        str | None,
        typer.Option(help="Color under transparent pixels, a name or #rrggbb: white, or that of the run that embeds."),
    ] = None,
    batch_size: Annotated[int, typer.Option(help="Images at a time.")] = 256,
    workers: Annotated[int, typer.Option(help="Processes that decode.")] = 0,
    errors: Annotated[str, typer.Option(help="`raise` at an unreadable image, or `skip` it.")] = "raise",
    plugin: Plugins = None,
) -> None:
    """Write embeddings and labels to a file that `kinfold evaluate` and `kinfold train features` read. Stopped, it
    goes on later.

    Example: `kinfold embed folder --root photos --run runs/first --out photos.npz`

    `kinfold embed runs/first --split test --out test.npz` embeds the data that the run was made on. A repeat of a bench
    with several folds embeds with all of its models side by side.
    """
    from kinfold.cli.progress import show_progress
    from kinfold.data.embedding import embed_to_file as write
    from kinfold.data.image_reading import BACKGROUND
    from kinfold.experiments import open_run

    if run is not None and backbone is not None:
        raise ValueError("--run and --backbone both embed: give one of them")
    if run is not None and background is not None:
        raise ValueError("a run embeds on the background that it was trained with: leave --background out")
    if Path(name).is_dir() and root is None:
        if run is not None or backbone is not None:
            raise ValueError(f"{name} is a run and embeds by itself; to embed a data set with it: --run {name}")
        if changes:
            raise ValueError(f"{name} is a run and embeds the data that it was made on: leave --set out")
        if background is not None:
            raise ValueError(f"{name} is a run with a background of its own: leave --background out")
        run = Path(name)
        split, dataset = split_of(open_run(run), split)
    else:
        dataset = load(name, root, changes)
        dataset = dataset if split is None else dataset.subset(split)
    if run is not None:
        embedder = _of_run(run)
    elif backbone is None or backbone == "pixels":
        embedder = _pixels(size, grey, background or BACKGROUND)
    else:
        embedder = _of_backbone(backbone, weights, dataset, background or BACKGROUND)
    with show_progress() as progress:
        broken = write(
            dataset,
            out,
            embedder.model,
            about={**embedder.about, "split": split},
            transform=None if embedder.pipeline is None else embedder.pipeline.test,
            normalize=None if embedder.pipeline is None else embedder.pipeline.normalize,
            mode="RGB" if embedder.pipeline is None else embedder.pipeline.mode,
            background=BACKGROUND if embedder.pipeline is None else embedder.pipeline.background,
            batch_size=batch_size,
            workers=workers,
            errors=errors,  # type: ignore[arg-type]  # checked where it is used, with the choices in the message
            progress=progress,
        )
    for why in [*broken.values()][:20]:
        echo(why, err=True)
    only = "" if split is None else f", {split} alone"
    left_out = f", {len(broken):,} unreadable images left out" if broken else ""
    echo(f"{out}: {len(dataset) - len(broken):,} rows of {dataset.name}{only}{left_out}")


@dataclass(frozen=True)
class Embedding:
    """What embeds, how images are made ready for it, and what tells it from another."""

    model: "Callable[[Tensor], Tensor]"
    pipeline: "Pipeline | None"
    about: dict[str, Any]


def _of_run(folder: Path) -> Embedding:
    run = used(folder)
    digest = hashlib.sha256()
    for weights in run.weight_files():
        digest.update(weights.read_bytes())
    return Embedding(run.model(), run.pipeline, {"run": str(folder), "weights": digest.hexdigest()})


def _of_backbone(name: str, weights: str | None, dataset: "Dataset", background: str) -> Embedding:
    from kinfold import data, models

    options = {"width": dataset.items[0].shape[0]} if name == "features" else None
    network = models.create(name, weights=weights, backbone_options=options).eval()
    pipeline = None
    if network.backbone.pipeline is not None:
        pipeline = replace(data.create_pipeline(network.backbone.pipeline), background=background)
    return Embedding(network.features, pipeline, {"backbone": name, "weights": weights})


def _pixels(size: int, grey: bool, background: str) -> Embedding:
    from kinfold import data
    from kinfold.data.embedding import flatten_pixels

    pipeline = data.Pipeline(data.Warp(size), data.Warp(size), None, "L" if grey else "RGB", background)
    return Embedding(flatten_pixels, pipeline, {"backbone": "pixels", "size": size, "grey": grey})
