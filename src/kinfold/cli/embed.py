"""`kinfold embed`: a feature file from the items of a dataset, by a run, a backbone or plain pixels."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kinfold.cli.datasets import Changes, check_run_or_data, load
from kinfold.cli.plugins import Plugins
from kinfold.cli.runs import SPLIT_HELP, open_for_use, select_split
from kinfold.cli.terminal import echo

PIXELS = 28  # width and height of the images that embed as they are

if TYPE_CHECKING:
    from kinfold.data import Dataset
    from kinfold.embedding import Encoder


def embed(
    name: Annotated[
        str, typer.Argument(help="A name that `kinfold list datasets` shows, or the folder of a run or a repeat.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The .npz file to write.")],
    root: Annotated[Path | None, typer.Option(help="The folder of the dataset, or the file of a table.")] = None,
    changes: Changes = None,
    split: Annotated[str | None, typer.Option(help=f"{SPLIT_HELP} Of a dataset: only this one.")] = None,
    run: Annotated[
        Path | None, typer.Option(help="The folder of the run, or of the repeat of a bench, that embeds.")
    ] = None,
    backbone: Annotated[
        str | None, typer.Option(help="A backbone that embeds as it is, or `pixels`; `kinfold list backbones`.")
    ] = None,
    weights: Annotated[str | None, typer.Option(help="Of the backbone: a file, or `imagenet`.")] = None,
    size: Annotated[
        int | None,
        typer.Option(
            help="Images become this many pixels wide and high; else as the backbone was trained, `pixels`: 28."
        ),
    ] = None,
    gray: Annotated[bool, typer.Option(help="`pixels`: gray instead of color.")] = False,
    background: Annotated[
        str | None,
        typer.Option(help="Color under transparent pixels, a name or #rrggbb: white, or that of the run that embeds."),
    ] = None,
    batch_size: Annotated[int, typer.Option(help="Images at a time.")] = 256,
    workers: Annotated[int, typer.Option(help="Processes that decode.")] = 0,
    errors: Annotated[str, typer.Option(help="`raise` at an unreadable image, or `skip` it.")] = "raise",
    plugin: Plugins = None,
) -> None:
    """Write embeddings and labels to a file that `kinfold evaluate` and `kinfold train features` read. After an
    interruption, the same command continues.

    Example: `kinfold embed folder --root photos --run runs/first --out photos.npz`

    `kinfold embed runs/first --split test --out test.npz` embeds the data that the run was trained on. A repeat of a
    bench with several folds embeds with all of its models side by side.
    """
    from kinfold.cli.progress import show_progress
    from kinfold.embedding import embed_to_file
    from kinfold.experiments import open_run
    from kinfold.files.paths import refuse_input

    if run is not None and backbone is not None:
        raise ValueError("--run and --backbone both embed: give one of them")
    if (run is not None or (Path(name).is_dir() and root is None)) and size is not None:
        raise ValueError("a run embeds images of the size that it was trained with: leave --size out")
    if run is not None and background is not None:
        raise ValueError("a run embeds on the background that it was trained with: leave --background out")
    if Path(name).is_dir() and root is None:
        check_run_or_data(Path(name))
        if run is not None or backbone is not None:
            raise ValueError(f"{name} is a run and embeds by itself; to embed a dataset with it: --run {name}")
        if changes:
            raise ValueError(f"{name} is a run and embeds the data that it was trained on: leave --set out")
        if background is not None:
            raise ValueError(f"{name} is a run with a background of its own: leave --background out")
        run = Path(name)
        opened = open_run(run)
        refuse_input(out, *(each.config.data.root for each in getattr(opened, "runs", [opened])))
        split, dataset = select_split(opened, split)
    else:
        refuse_input(out, root)
        dataset = load(name, root, changes)
        dataset = dataset if split is None else dataset.subset(split)
    encoder = _choose_encoder(dataset, run, backbone, weights, size, gray, background)
    with show_progress(lines=True) as progress:
        unreadable = embed_to_file(
            dataset,
            out,
            encoder,
            split=split,
            batch_size=batch_size,
            workers=workers,
            errors=errors,  # type: ignore[arg-type]  # checked where it is used, with the choices in the message
            progress=progress,
        )
    for why in [*unreadable.values()][:20]:
        echo(why, err=True)
    only = "" if split is None else f", {split} alone"
    left_out = f", {len(unreadable):,} unreadable images left out" if unreadable else ""
    of_pixels = ", the pixels of the images: --backbone NAME --weights imagenet takes features of a network"
    how = of_pixels if run is None and backbone is None else ""
    echo(f"{out}: {len(dataset) - len(unreadable):,} rows of {dataset.name}{only}{left_out}{how}")


def _choose_encoder(
    dataset: "Dataset",
    run: Path | None,
    backbone: str | None,
    weights: str | None,
    size: int | None,
    gray: bool,
    background: str | None,
) -> "Encoder":
    from kinfold.data.image_reading import BACKGROUND
    from kinfold.embedding import Encoder

    if run is not None:
        return Encoder.from_run(open_for_use(run))
    background = background or BACKGROUND
    if backbone is None or backbone == "pixels":
        return Encoder.from_pixels(PIXELS if size is None else size, gray, background)
    if backbone == "features" and size is not None:
        raise ValueError("features have no size in pixels: leave --size out")
    width = dataset.items[0].shape[0] if backbone == "features" else None
    return Encoder.from_backbone(backbone, weights, width=width, background=background, size=size)
