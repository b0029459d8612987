"""`kinfold adapt`: from a feature file or images to the best space, never worse than the input."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kinfold.cli.datasets import Changes, load
from kinfold.cli.terminal import echo

if TYPE_CHECKING:
    from rich.table import Table

    from kinfold.adaptation import Adaptation

_TEXT = ("step", "best candidate")
_DECISION = ("step", "score (95 %)", "gain (95 %)", "p", "taken")  # what a narrow terminal shows in a table of its own
_WIDEST = 1000


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
    with show_progress(enabled=not as_json, lines=True) as report:
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

    from kinfold.cli.console import Console

    console = Console(file=sys.stdout)
    cells = adaptation.cells()
    decisions = [cells[0].index(name) for name in cells[0] if name in _DECISION]
    details = [0, *(number for number in range(len(cells[0])) if number not in decisions)]
    whole = _make_table(cells, range(len(cells[0])))
    if console.measure(whole, options=console.options.update(max_width=_WIDEST)).maximum <= console.width:
        console.print(whole)
    else:
        console.print(_make_table(cells, decisions))
        console.print(_make_table(cells, details))
    console.print(adaptation.verdict, highlight=False)
    console.print(f"{adaptation.folder}", highlight=False)


def _make_table(cells: list[list[str]], columns: Iterable[int]) -> "Table":
    """Return a table of some columns; only texts may be broken into lines."""
    from rich.table import Table

    header, *rows = cells
    chosen = [*columns]
    table = Table()
    for number in chosen:
        is_text = header[number] in _TEXT
        table.add_column(header[number], justify="left" if is_text else "right", no_wrap=not is_text)
    for row in rows:
        table.add_row(*(row[number] for number in chosen))
    return table
