"""`kinfold calibrate`: a threshold for classes never seen."""

import json
from pathlib import Path
from typing import Annotated

import typer

from kinfold.cli.plugins import Plugins
from kinfold.cli.runs import open_for_use
from kinfold.cli.terminal import echo


def calibrate(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    far: Annotated[float, typer.Option(help="The false-accept rate, above 0 and below 1.")] = 1e-2,
    split: Annotated[str | None, typer.Option(help="test or validation; left out: test where it may be seen.")] = None,
    gallery: Annotated[
        Path | None, typer.Option(help="A gallery that answers `none of these` at the rate from now on.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of all draws.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    plugin: Plugins = None,
) -> None:
    """Choose a similarity threshold for "same class or not", on classes that were not trained on.

    Example: `kinfold calibrate runs/birds --far 1e-2 --gallery birds.gallery`

    The rate is guaranteed where there are enough classes, and estimated otherwise; the output says which. The result
    is kept in the run, and `kinfold export` writes it to the metadata of an .onnx file.
    """
    from kinfold.calibration import calibrate_run
    from kinfold.cli.progress import show_progress
    from kinfold.gallery import Gallery

    opened = open_for_use(run)
    target = None if gallery is None else Gallery.open(gallery)
    with show_progress(enabled=not as_json) as progress:
        result = calibrate_run(opened, far, split=split, progress=progress, seed=seed)
        enrolled = None if target is None else target.calibrate(opened, far, split=split)
    if as_json:
        content = result.to_dict()
        echo(json.dumps(content if enrolled is None else {**content, "gallery": enrolled.to_dict()}, indent=2))
        return
    for line in result.describe():
        echo(line)
    echo(f"estimated thresholds of identification at a false-positive rate of {far:g}:")
    echo(result.table())
    if enrolled is not None and gallery is not None:
        echo(f"{gallery}: {enrolled.describe()}")
