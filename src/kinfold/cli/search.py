"""`kinfold search`: the nearest items of a query in the embedding space of a run."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kinfold.cli.plugins import Plugins
from kinfold.cli.terminal import echo

if TYPE_CHECKING:
    from kinfold.embedding import SearchIndex, SearchItem, SearchResult
    from kinfold.report.neighbor_grid import GridPicture, Mark


def search(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    query: Annotated[
        str, typer.Argument(help="An image, an .npy file, or '#17' for that item of the gallery, counted from 0.")
    ],
    gallery: Annotated[
        str | None,
        typer.Option(help="A folder of images, a table, a feature file or the name of a dataset; else the run's own."),
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(help="train, validation, test or all; left out: the run's test classes, or all that may be seen."),
    ] = None,
    k: Annotated[int, typer.Option("--k", "-k", help="How many neighbors.")] = 10,
    grid: Annotated[Path | None, typer.Option(help="A .png file to show query and neighbors in.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    plugin: Plugins = None,
) -> None:
    """Find the nearest items of a query, exactly, by the distance of the run.

    Example: `kinfold search runs/birds wren.jpg --grid wren.png`

    An item of the gallery is not its own neighbor. For a run on features an .npy file holds one row of them; for a run
    on images it holds an embedding, or the uint8 pixels of an image. Embeddings of the gallery are cached in the run.
    """
    from kinfold.cli.progress import show_progress
    from kinfold.cli.runs import warn_unfinished
    from kinfold.embedding import SearchIndex
    from kinfold.files.paths import check_parent
    from kinfold.training import Run

    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    if grid is not None and grid.suffix.lower() != ".png":  # before anything long begins
        raise ValueError(f"--grid writes a .png file, got {grid.name!r}")
    if grid is not None:
        check_parent(grid)
    opened = Run.open(run)
    warn_unfinished(opened)
    with show_progress(enabled=not as_json) as progress:
        index = SearchIndex.open(opened, gallery, split, progress, lambda message: echo(message, err=True))
        result = index.search(query, k)
    if grid is not None:
        _draw_grid(grid, result, opened.background)
    if as_json:
        content = {
            "run": str(run),
            "gallery": index.name,
            "items": len(index),
            "distance": opened.distance,
            "query": result.query.to_dict(),
            "neighbors": result.rows(),
            "grid": None if grid is None else str(grid),
        }
        echo(json.dumps(content, indent=2))
        return
    _print_table(index, result)
    if grid is not None:
        echo(f"{grid}: the query and {len(result.neighbors)} neighbors")


def _print_table(index: "SearchIndex", result: "SearchResult") -> None:
    from rich.table import Table

    from kinfold.cli.console import Console

    console = Console(file=sys.stdout)
    label, rows = result.query.label, result.rows()
    known_class = "" if label is None else f", class {label}"
    console.print(f"{_name_item(result.query)}{known_class}, in {index.name}: {len(index):,} items")
    table = Table()
    table.add_column("rank", justify="right")
    table.add_column(result.measure, justify="right")
    table.add_column("class", overflow="fold")
    if label is not None:
        table.add_column("same")
    table.add_column("file" if any(row["file"] for row in rows) else "item", overflow="fold")
    for row in rows:
        cells = [str(row["rank"]), f"{row[result.measure]:.4f}", row["class"] or ""]
        if label is not None:
            cells.append({True: "yes", False: "no", None: ""}[row["same_class"]])
        table.add_row(*cells, _shorten_path(row["file"]) if row["file"] else f"#{row['index']}")
    console.print(table)


def _name_item(item: "SearchItem") -> str:
    return Path(item.file).name if item.file is not None else f"#{item.index}"


def _shorten_path(file: str) -> str:
    path, here = Path(file), Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else file


def _draw_grid(path: Path, result: "SearchResult", background: str) -> None:
    from kinfold.report.neighbor_grid import draw_grid

    marks: dict[bool | None, Mark] = {True: "right", False: "wrong", None: "unknown"}
    tiles = [
        _make_tile(item, f"{rank}   {score:.3f}", marks[result.query.has_same_class(item)], background)
        for rank, (score, item) in enumerate(zip(result.scores, result.neighbors, strict=True), start=1)
    ]
    draw_grid(_make_tile(result.query, "query", "query", background), tiles, path)


def _make_tile(item: "SearchItem", title: str, mark: "Mark", background: str) -> "GridPicture":
    from kinfold.data import decode
    from kinfold.report.neighbor_grid import GridPicture

    picture = None if getattr(item.content, "ndim", 0) == 1 else decode(item.content, background=background)
    return GridPicture((title, item.label or _name_item(item)), picture, mark)
