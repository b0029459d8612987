"""`kinfold upgrade`: a map from a new model to the space of an old gallery."""

import json
from pathlib import Path
from typing import Annotated

import typer

from kinfold.cli.plugins import Plugins
from kinfold.cli.runs import open_for_use
from kinfold.cli.terminal import echo


def upgrade(
    old: Annotated[Path, typer.Argument(help="The run that made the gallery.")],
    new: Annotated[Path, typer.Argument(help="The run that embeds from now on.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The .safetensors file to write.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    plugin: Plugins = None,
) -> None:
    """Fit a linear map from a new model to an old one, so that an old gallery can be searched with the new model.

    Example: `kinfold upgrade runs/2025 runs/2026 --out upgrade.safetensors`, then
    `kinfold gallery search birds.gallery wren.jpg --run runs/2026 --upgrade upgrade.safetensors`

    The map is fitted on the training items of the old run, and its recall is measured on unseen classes.
    """
    from kinfold.cli.progress import show_progress
    from kinfold.files.paths import check_parent
    from kinfold.gallery.upgrade import fit_upgrade

    if out.suffix != ".safetensors":
        raise ValueError(f"--out must end in .safetensors, got {out.name!r}")
    check_parent(out)
    with show_progress(enabled=not as_json) as progress:
        fitted = fit_upgrade(open_for_use(old), open_for_use(new), progress)
    fitted.save(out)
    if as_json:
        echo(json.dumps({"out": str(out), "recall@1": fitted.recall}, indent=2))
        return
    echo(f"{out}: recall@1 on unseen classes")
    echo(f"  old model alone             {fitted.recall['old']:.4f}")
    echo(f"  new queries, mapped, in old {fitted.recall['mapped']:.4f}")
    echo(f"  new model alone             {fitted.recall['new']:.4f}")
