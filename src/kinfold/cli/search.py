"""`kinfold search`: the nearest items of a query in the space of a run."""

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kinfold.cli.plugins import Plugins
from kinfold.cli.terminal import echo

if TYPE_CHECKING:
    from torch import Tensor

    from kinfold.cli.gallery import SearchIndex, SearchItem
    from kinfold.report.neighbor_grid import Mark, Tile
    from kinfold.training import Run


def search(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    query: Annotated[
        str, typer.Argument(help="An image, an .npy file, or '#17' for that item of the gallery, counted from 0.")
    ],
    gallery: Annotated[
        str | None,
        typer.Option(help="A folder of images, a table, a feature file or the name of a data set; else the run's own."),
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(help="train, validation, test or all; left out: the run's test classes, or all that may be seen."),
    ] = None,
    k: Annotated[int, typer.Option("--k", "-k", help="How many neighbours.")] = 10,
    grid: Annotated[Path | None, typer.Option(help="A .png file to show query and neighbours in.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    plugin: Plugins = None,
) -> None:
    """The nearest items of a query, exact, by the distance of the run.

    Example: `kinfold search runs/birds wren.jpg --grid wren.png`

    An item of the gallery is not its own neighbour. For a run on features an .npy file holds one row of them; for a run
    on images it holds an embedding, or the uint8 pixels of an image. The embeddings of the gallery are kept in the run.
    """
    import torch

    from kinfold.cli.gallery import open_search_index
    from kinfold.cli.progress import show_progress
    from kinfold.cli.runs import say_unfinished
    from kinfold.metrics import neighbors
    from kinfold.training import Run

    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    if grid is not None and grid.suffix.lower() != ".png":  # before anything long begins
        raise ValueError(f"--grid writes a .png file, got {grid.name!r}")
    space = Run.open(run)
    say_unfinished(space)
    with show_progress(enabled=not as_json) as progress:
        searched = open_search_index(space, gallery, split, progress)
        asked, embedding = _query(space, query, searched)
    exclude = torch.tensor([-1 if asked.index is None else asked.index])
    values, indices = neighbors(embedding, searched.embeddings, k, space.distance, exclude=exclude)
    found = [searched.item(index) for index in indices[0].tolist()]
    scores: list[float] = values[0].tolist()
    if grid is not None:
        _draw(grid, asked, found, scores, space.background)
    measure = "distance" if space.distance == "euclidean" else "similarity"
    rows = [
        {"rank": rank, measure: score, **item.described(), "same_class": _same(asked, item)}
        for rank, (score, item) in enumerate(zip(scores, found, strict=True), start=1)
    ]
    if as_json:
        about: dict[str, Any] = {"run": str(run), "gallery": searched.name, "items": len(searched.embeddings)}
        about |= {"distance": space.distance, "query": asked.described(), "neighbours": rows}
        echo(json.dumps({**about, "grid": None if grid is None else str(grid)}, indent=2))
        return
    _show(searched, asked, rows, measure)
    if grid is not None:
        echo(f"{grid}: the query and {len(found)} neighbours")


def _query(run: "Run", given: str, gallery: "SearchIndex") -> "tuple[SearchItem, Tensor]":
    """What is looked for, with its embedding (1, dim)."""
    from kinfold.cli.gallery import SearchItem, embed_query
    from kinfold.data import ImageFiles, create_dataset

    path = Path(given)
    if re.fullmatch(r"#[0-9]+", given) or (re.fullmatch(r"[0-9]+", given) and not path.exists()):
        index = int(given.removeprefix("#"))
        return gallery.item(index), gallery.embeddings[index : index + 1]
    if not path.is_file():
        raise ValueError(f"there is no file {given}; a query is an image, an .npy file, or '#17' for an item")
    if path.suffix.lower() == ".npy":
        return _array_query(run, path, gallery)
    if run.pipeline is None:
        raise ValueError(f"the run {run.folder} embeds features, not images; ask with an .npy file or '#17'")
    index_or_none = gallery.find(path.resolve())
    if index_or_none is not None:
        return gallery.item(index_or_none), gallery.embeddings[index_or_none : index_or_none + 1]
    alone = create_dataset("query", ImageFiles(path.parent, [path.name]), [""], ["test"])
    return SearchItem(alone.items[0], file=given), embed_query(run, alone)


def _array_query(run: "Run", path: Path, gallery: "SearchIndex") -> "tuple[SearchItem, Tensor]":
    import numpy as np
    import torch

    from kinfold.cli.gallery import SearchItem, embed_query
    from kinfold.data import Rows, create_dataset
    from kinfold.data.column_files import read_npy

    array = np.array(read_npy(path))
    pixels = run.pipeline is not None and array.dtype == np.uint8 and array.ndim in (2, 3)
    if pixels:
        return SearchItem(array, file=str(path)), embed_query(
            run, create_dataset("query", Rows(array[None]), [""], ["test"])
        )
    row = array[0] if array.ndim == 2 and len(array) == 1 else array
    if row.ndim != 1 or row.dtype.kind not in "fiu" or not np.isfinite(row).all():
        raise ValueError(f"{path} must hold one row of finite numbers; it holds {array.dtype} {array.shape}")
    row = row.astype(np.float32)
    if run.pipeline is None:
        return SearchItem(row, file=str(path)), embed_query(
            run, create_dataset(str(path), Rows(row[None]), [""], ["test"])
        )
    dim = gallery.embeddings.shape[1]
    if len(row) != dim:
        raise ValueError(f"{path} has {len(row)} numbers, but an embedding of this run has {dim}")
    return SearchItem(row, file=str(path)), torch.from_numpy(row)[None]


def _same(query: "SearchItem", item: "SearchItem") -> bool | None:
    return None if query.label is None or item.label is None else query.label == item.label


def _draw(path: Path, query: "SearchItem", found: "list[SearchItem]", scores: list[float], background: str) -> None:
    from kinfold.report.neighbor_grid import draw_grid

    marks: dict[bool | None, Mark] = {True: "right", False: "wrong", None: "unknown"}
    neighbours = [
        _tile(item, f"{rank}   {score:.3f}", marks[_same(query, item)], background)
        for rank, (score, item) in enumerate(zip(scores, found, strict=True), start=1)
    ]
    draw_grid(_tile(query, "query", "query", background), neighbours, path)


def _tile(item: "SearchItem", title: str, mark: "Mark", background: str) -> "Tile":
    from kinfold.data import decode
    from kinfold.report.neighbor_grid import Tile

    picture = None if getattr(item.thing, "ndim", 0) == 1 else decode(item.thing, background=background)
    return Tile((title, item.label or _place(item)), picture, mark)


def _place(item: "SearchItem") -> str:
    return Path(item.file).name if item.file is not None else f"#{item.index}"


def _short(file: str) -> str:
    path, here = Path(file), Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else file


def _show(gallery: "SearchIndex", query: "SearchItem", rows: list[dict[str, Any]], measure: str) -> None:
    from rich.table import Table

    from kinfold.cli.console import Console

    console = Console(file=sys.stdout)
    known = f", class {query.label}" if query.label is not None else ""
    console.print(f"{_place(query)}{known}, in {gallery.name}: {len(gallery.embeddings):,} items")
    files = any(row["file"] for row in rows)
    table = Table()
    table.add_column("rank", justify="right")
    table.add_column(measure, justify="right")
    table.add_column("class", overflow="fold")
    if query.label is not None:
        table.add_column("same")
    table.add_column("file" if files else "item", overflow="fold")
    for row in rows:
        same = {True: "yes", False: "no", None: ""}[row["same_class"]]
        cells = [row["rank"], f"{row[measure]:.4f}", row["class"] or ""]
        cells += [same] if query.label is not None else []
        table.add_row(*map(str, [*cells, _short(row["file"]) if row["file"] else f"#{row['index']}"]))
    console.print(table)
