"""`kinfold adapt`: from a feature file or images to the best space, never worse than the input."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kinfold.cli.datasets import Changes, load
from kinfold.cli.terminal import echo

if TYPE_CHECKING:
    from kinfold.adaptation import Adaptation


def adapt(
    data: Annotated[
        Path,
        typer.Argument(
            help="A feature file with labels (.npz, .npy, .parquet), a folder of images, or a table (.csv)."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder of the run.")],
    minutes: Annotated[float | None, typer.Option(help="Time for everything; 10 if left out.")] = None,
    plan: Annotated[
        str | None, typer.Option(help="quick, standard or thorough: fixed steps instead of minutes.")
    ] = None,
    metrics: Annotated[str, typer.Option(help="What is measured; the mean of these decides.")] = "recall@1,map@r",
    distance: Annotated[str, typer.Option(help="cosine, dot, euclidean or hyperbolic.")] = "cosine",
    seed: Annotated[int, typer.Option(help="Of all draws.")] = 0,
    reader: Annotated[
        str | None,
        typer.Option("--data", help="How to read it, a name of `kinfold list datasets`; else by folder or file name."),
    ] = None,
    backbone: Annotated[
        str | None,
        typer.Option(help="Of images: what embeds them; efficientnet-lite0 with ImageNet weights if left out."),
    ] = None,
    weights: Annotated[str | None, typer.Option(help="Of the backbone: a file, or `imagenet`.")] = None,
    changes: Changes = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Find the best space for labeled features or images: whitening, LDA, trained heads, fine-tuning; each only if
    it is significantly better on held-out classes. After an interruption, the same command continues.

    Example: `kinfold adapt clip.npz --out runs/adapted --minutes 10`

    Example: `kinfold adapt photos --out runs/adapted --minutes 60`

    Then `kinfold embed`, `search`, `export` and `report` take the folder as that of any run.
    """
    from kinfold.adaptation import adapt as run_adaptation
    from kinfold.cli.progress import show_progress
    from kinfold.data.labeled import find_reader
    from kinfold.training import Stopped
    from kinfold.training.config.parsing import configure

    name = reader or find_reader(data)
    dataset = load(name, data, changes)
    options = configure({"data": {"name": name}}, changes or []).data.options
    source: dict[str, Any] = {"name": name, "root": str(data.resolve())}
    with show_progress(enabled=not as_json) as bar:

        def report(text: str, share: float) -> None:
            if bar is not None:
                bar(text, share)
            elif share >= 1.0 and not as_json:
                echo(f"{text}: finished", err=True)

        try:
            adaptation = run_adaptation(
                dataset,
                folder=out,
                minutes=minutes,
                plan=plan,
                metrics=metrics.split(","),
                distance=distance,  # type: ignore[arg-type]  # checked where it is used
                seed=seed,
                backbone=backbone,
                weights=weights,
                source={**source, "options": options} if options else source,
                report=report,
            )
        except Stopped as stopped:
            echo(f"{stopped}; the same command continues in {out}", err=True)
            raise typer.Exit(128 + stopped.signal) from None
    if as_json:
        echo((adaptation.folder / "adaptation" / "result.json").read_text(), nl=False)
    else:
        show_adaptation(adaptation)


def show_adaptation(adaptation: "Adaptation") -> None:
    """Print the ladder, the verdict and the folder."""
    import sys

    from rich.table import Table

    from kinfold.cli.console import Console

    console = Console(file=sys.stdout)
    header, *rows = adaptation.cells()
    table = Table()
    for number, name in enumerate(header):
        table.add_column(name, justify="left" if number < 2 else "right")
    for row in rows:
        table.add_row(*row)
    console.print(table)
    console.print(adaptation.verdict, highlight=False)
    console.print(f"{adaptation.folder}", highlight=False)
