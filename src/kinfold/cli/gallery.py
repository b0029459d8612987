"""`kinfold gallery`: build, extend and search a gallery of embeddings."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kinfold.cli.plugins import Plugins
from kinfold.cli.runs import open_for_use
from kinfold.cli.terminal import echo

if TYPE_CHECKING:
    from kinfold.gallery import Gallery, Matches

app = typer.Typer(help="Build, extend and search galleries of embeddings.", no_args_is_help=True)

Folder = Annotated[Path, typer.Argument(help="The folder of the gallery.")]
Data = Annotated[
    str, typer.Argument(help="A folder of images, an image, a table, a feature file, or the name of a dataset.")
]
RunOption = Annotated[
    Path | None, typer.Option(help="The run that embeds; left out for a file that holds embeddings already.")
]
LabelOption = Annotated[str | None, typer.Option(help="The class of all items; left out: that of each item.")]
SplitOption = Annotated[str | None, typer.Option(help="Only the items of this split.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("build")
def build(
    gallery: Folder,
    items: Data,
    run: RunOption = None,
    label: LabelOption = None,
    split: SplitOption = None,
    as_json: AsJson = False,
    plugin: Plugins = None,
) -> None:
    """Make a gallery and add items to it. After an interruption, `kinfold gallery add` continues.

    Example: `kinfold gallery build birds.gallery photos --run runs/birds`

    Without --run the items are the rows of an .npz or .parquet file of embeddings, such as `kinfold embed` writes.
    """
    from kinfold.gallery import Gallery
    from kinfold.gallery.adding import read_fingerprint, read_rows
    from kinfold.gallery.folder import remove_empty_gallery

    if run is not None:
        _load_items(items)  # raises before anything is written
        made = Gallery.create(gallery, run=open_for_use(run))
    else:
        _check_embedding_file(items)
        width = read_rows(items, label).embeddings.shape[1]
        made = Gallery.create(gallery, dim=width, fingerprint=read_fingerprint(items))
    try:
        _add(made, items, run, label, split, "skip", as_json)
    except ValueError:
        if not len(made):
            remove_empty_gallery(made.folder)
        raise


@app.command("add")
def add(
    gallery: Folder,
    items: Data,
    run: RunOption = None,
    label: LabelOption = None,
    split: SplitOption = None,
    replace: Annotated[bool, typer.Option(help="Replace items with the same id; otherwise they are skipped.")] = False,
    as_json: AsJson = False,
    plugin: Plugins = None,
) -> None:
    """Add items to a gallery: more of its classes, or new classes, which need no training.

    Example: `kinfold gallery add birds.gallery new-photos --run runs/birds --label "Marsh Wren"`

    The id of an image is its path. Items whose id is there already are skipped, so that the same command can be
    repeated.
    """
    from kinfold.gallery import Gallery

    _add(Gallery.open(gallery), items, run, label, split, "replace" if replace else "skip", as_json)


@app.command("remove")
def remove(
    gallery: Folder,
    ids: Annotated[list[str] | None, typer.Option("--id", help="The id of an item; may be repeated.")] = None,
    labels: Annotated[list[str] | None, typer.Option("--label", help="A class; may be repeated.")] = None,
    as_json: AsJson = False,
) -> None:
    """Remove items, or whole classes, from a gallery.

    Example: `kinfold gallery remove birds.gallery --label "Marsh Wren"`
    """
    from kinfold.gallery import Gallery

    opened = Gallery.open(gallery)
    removed = opened.remove(ids or None, labels or None)
    if as_json:
        echo(json.dumps({"removed": removed, "items": len(opened)}))
    else:
        echo(f"{gallery}: {removed:,} removed, {len(opened):,} left")


@app.command("search")
def search(
    gallery: Folder,
    query: Annotated[str, typer.Argument(help="An image, or an .npy file: rows of features or embeddings.")],
    run: RunOption = None,
    k: Annotated[int, typer.Option("--k", "-k", help="How many neighbors.")] = 10,
    upgrade: Annotated[
        Path | None, typer.Option(help="A map of `kinfold upgrade`, for the run of a newer model.")
    ] = None,
    approximate: Annotated[
        bool, typer.Option("--approximate", help="Take candidates from the index of `kinfold gallery index`.")
    ] = False,
    as_json: AsJson = False,
    plugin: Plugins = None,
) -> None:
    """Find the nearest items of a query by cosine, exactly or with an index.

    Example: `kinfold gallery search birds.gallery wren.jpg --run runs/birds`
    """
    from rich.table import Table

    from kinfold.cli.console import Console
    from kinfold.gallery import Gallery

    opened = Gallery.open(gallery)
    if upgrade is None:
        model = None if run is None else open_for_use(run)
        matches = opened.search(_read_query(query, run), k, run=model, approximate=approximate)
    else:
        matches = _search_mapped(opened, query, run, upgrade, k, approximate)
    if as_json:
        results = [[match.to_dict() for match in each] for each in matches]
        echo(json.dumps({"gallery": str(gallery), "items": len(opened), "queries": results}, indent=2))
        return
    table = Table()
    for name in ("query", "rank", "similarity"):
        table.add_column(name, justify="right")
    table.add_column("class", overflow="fold")
    table.add_column("id", overflow="fold")
    for number, each in enumerate(matches):
        for rank, match in enumerate(each, start=1):
            table.add_row(str(number), str(rank), f"{match.similarity:.4f}", match.label, match.id)
    Console(file=sys.stdout).print(table)


@app.command("index")
def index(
    gallery: Folder,
    library: Annotated[str, typer.Option(help="faiss or usearch.")] = "faiss",
    drop: Annotated[bool, typer.Option("--drop", help="Delete the index.")] = False,
    as_json: AsJson = False,
) -> None:
    """Build an index for `search --approximate` and keep it with the gallery; `add` and `remove` keep it up to date.

    Example: `kinfold gallery index birds.gallery --library usearch`
    """
    from kinfold.gallery import Gallery

    opened = Gallery.open(gallery)
    if drop:
        opened.drop_index()
    else:
        opened.build_index(library)  # type: ignore[arg-type]
    facts = opened.info()["index"]
    if as_json:
        echo(json.dumps({"index": facts}))
    else:
        echo(f"{gallery}: " + (f"{facts['library']} index of {facts['items']:,} items" if facts else "no index"))


@app.command("identify")
def identify(
    gallery: Folder,
    query: Annotated[str, typer.Argument(help="An image, or an .npy file: rows of features or embeddings.")],
    run: RunOption = None,
    as_json: AsJson = False,
    plugin: Plugins = None,
) -> None:
    """Name a query by its nearest item, or answer "none of these". Needs `kinfold calibrate RUN --gallery GALLERY`.

    Example: `kinfold gallery identify birds.gallery unknown.jpg --run runs/birds`
    """
    from kinfold.gallery import Gallery

    opened = Gallery.open(gallery)
    answers = opened.identify(_read_query(query, run), run=None if run is None else open_for_use(run))
    if as_json:
        results = [answer.to_dict() for answer in answers]
        echo(json.dumps({"threshold": answers.threshold.to_dict(), "queries": results}, indent=2))
        return
    echo(answers.table())
    echo(answers.threshold.describe())


@app.command("info")
def info(
    gallery: Folder,
    verify: Annotated[bool, typer.Option(help="Check the sha256 of every file.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show counts, model and size of a gallery.

    Example: `kinfold gallery info birds.gallery --verify`
    """
    from kinfold.gallery import Gallery

    facts = Gallery.open(gallery).info(verify)
    if as_json:
        echo(json.dumps(facts, indent=2))
        return
    for name, value in facts.items():
        echo(f"{name}: {value:,}" if isinstance(value, int) and not isinstance(value, bool) else f"{name}: {value}")


@app.command("export")
def export(
    gallery: Folder,
    to: Annotated[str, typer.Option(help="parquet, faiss, usearch, lancedb or qdrant.")],
    out: Annotated[
        str, typer.Option("--out", "-o", help="A file; a folder for lancedb and qdrant, or a Qdrant address.")
    ],
) -> None:
    """Copy a gallery for another program.

    Example: `kinfold gallery export birds.gallery --to faiss --out birds.faiss`
    """
    from kinfold import registry
    from kinfold.gallery import Gallery
    from kinfold.gallery.exports import EXPORTS

    if to not in EXPORTS:
        raise ValueError(f"unknown format {to!r}{registry.suggest(to, [*EXPORTS])}; it is one of {', '.join(EXPORTS)}")
    opened = Gallery.open(gallery)
    EXPORTS[to](opened, out if out.startswith("http") else Path(out))  # type: ignore[arg-type]
    echo(f"{out}: {len(opened):,} items")


def _add(
    opened: "Gallery",
    items: str,
    run: Path | None,
    label: str | None,
    split: str | None,
    existing: Any,
    as_json: bool,
) -> None:
    from kinfold.cli.progress import show_progress
    from kinfold.gallery.adding import add_dataset, add_feature_file

    before = len(opened)
    if run is None:
        _check_embedding_file(items)
        if split is not None:
            raise ValueError("--split is for datasets that a run embeds: give --run, or a file of one split")
        added = add_feature_file(opened, items, label=label, existing=existing)
    else:
        dataset = _load_items(items)
        dataset = dataset if split is None else dataset.subset(split)
        with show_progress(enabled=not as_json) as progress:
            added = add_dataset(opened, dataset, open_for_use(run), label=label, existing=existing, progress=progress)
    facts = opened.info()
    if as_json:
        echo(json.dumps({"added": added, **facts}, indent=2))
        return
    replaced = before + added - len(opened)
    changes = f"{added - replaced:,} added" + (f", {replaced:,} replaced" if replaced else "")
    echo(f"{opened.folder}: {changes}, {len(opened):,} items of {facts['classes']:,} classes")


def _search_mapped(
    opened: "Gallery", query: str, run: Path | None, upgrade: Path, k: int, approximate: bool
) -> "Matches":
    """Search with the embeddings of a newer run, mapped to the space of the gallery."""
    from kinfold.embedding import fingerprint_run
    from kinfold.gallery.upgrade import SpaceMap

    if run is None:
        raise ValueError("--upgrade needs --run, the run of the newer model")
    newer, fitted = open_for_use(run), SpaceMap.load(upgrade)
    if fingerprint_run(newer) != fitted.source:
        raise ValueError(f"{upgrade} maps from another run than {run}: run `kinfold upgrade` with this one")
    rows = fitted(newer.embed(_read_query(query, run)))
    return opened.search(rows, k, fingerprint=fitted.target, approximate=approximate)


def _load_items(items: str) -> Any:
    from kinfold import data
    from kinfold.embedding.search import load_items

    path = Path(items)
    if path.is_file() and path.suffix.lower() not in (".npz", ".parquet", ".pq", ".csv", ".npy"):
        return data.create_dataset(path.name, data.ImageFiles(path.parent, [path.name]), [""], ["test"])
    return load_items(items)


def _check_embedding_file(items: str) -> None:
    from kinfold.files.paths import describe_missing

    if not Path(items).exists():
        raise ValueError(describe_missing(items, "file or folder"))
    if not Path(items).is_file() or Path(items).suffix.lower() not in (".npz", ".parquet", ".pq"):
        raise ValueError(f"{items} is not a file of embeddings (.npz, .parquet): give the run that embeds, --run RUN")


def _read_query(query: str, run: Path | None) -> Any:
    """Return what a run embeds, or an array of embeddings."""
    import numpy as np

    from kinfold.data.column_files import read_npy
    from kinfold.files.paths import describe_missing

    path = Path(query)
    if not path.is_file():
        raise ValueError(f"{describe_missing(query)}; a query is an image or an .npy file")
    if path.suffix.lower() == ".npy":
        return np.array(read_npy(path))
    if run is None:
        raise ValueError(f"{query} is no .npy file of embeddings: give the run that embeds it, --run RUN")
    return query
