"""`kinfold embed`: a feature file from the images of a data set."""

from pathlib import Path
from typing import Annotated

import typer


def embed(
    name: Annotated[str, typer.Argument(help="A name that `kinfold list datasets` shows.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The .npz file to write.")],
    root: Annotated[Path | None, typer.Option(help="The folder of the data set, or the file of a table.")] = None,
    split: Annotated[str | None, typer.Option(help="Only train, validation or test.")] = None,
    backbone: Annotated[str, typer.Option(help="What embeds; `pixels` for now.")] = "pixels",
    size: Annotated[int, typer.Option(help="Images become this many pixels wide and high.")] = 28,
    grey: Annotated[bool, typer.Option(help="Grey instead of colour.")] = False,
    batch_size: Annotated[int, typer.Option(help="Images at a time.")] = 256,
    workers: Annotated[int, typer.Option(help="Processes that decode.")] = 0,
    errors: Annotated[str, typer.Option(help="`raise` at an unreadable image, or `skip` it.")] = "raise",
) -> None:
    """Write embeddings and labels of a data set to a file that `kinfold evaluate` reads. Stopped, it goes on later.

    Example: `kinfold embed glyphs --split test --grey --out glyphs.npz`
    """
    from kinfold import data
    from kinfold.cli.progress import reporting
    from kinfold.data.embedding import embed as write

    if backbone != "pixels":
        raise ValueError(f"unknown backbone {backbone!r}; there is pixels")
    dataset = data.load(name, root)
    dataset = dataset if split is None else dataset.subset(split)
    with reporting() as progress:
        broken = write(
            dataset,
            out,
            about={"backbone": backbone, "size": size, "grey": grey, "split": split},
            transform=data.Warp(size),
            mode="L" if grey else "RGB",
            batch_size=batch_size,
            workers=workers,
            errors=errors,  # type: ignore[arg-type]  # checked where it is used, with the choices in the message
            progress=progress,
        )
    for why in [*broken.values()][:20]:
        typer.echo(why, err=True)
    left_out = f", {len(broken):,} unreadable images left out" if broken else ""
    typer.echo(f"{out}: {len(dataset) - len(broken):,} rows of {dataset.name}{left_out}")
