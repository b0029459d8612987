"""`kinfold data`: check a data set before training on it."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kinfold.cli.audit import audit
from kinfold.cli.datasets import Changes, check_name, load
from kinfold.cli.plugins import Plugins
from kinfold.cli.terminal import echo

if TYPE_CHECKING:
    from kinfold.data import Dataset, ImageCheck

app = typer.Typer(help="Check data sets.", no_args_is_help=True)
app.command("audit")(audit)


@app.command("check")
def check(
    name: Annotated[str, typer.Argument(help="Name of a data set; `kinfold list datasets` shows all.")],
    root: Annotated[Path | None, typer.Option(help="Folder of the data set, or file of a table.")] = None,
    counts: Annotated[bool, typer.Option(help="Compare the counts with the published ones.")] = True,
    images: Annotated[bool, typer.Option(help="Decode every image once.")] = True,
    workers: Annotated[int, typer.Option(help="Number of threads that decode images.")] = 2,
    changes: Changes = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    plugin: Plugins = None,
) -> None:
    """Show counts, splits, class sizes, transparent images and unreadable files; exit code 1 if files are unreadable.

    Example: `kinfold data check cub --root CUB_200_2011`
    """
    import inspect

    from kinfold import data, registry

    check_name(name)
    takes_counts = "check" in inspect.signature(registry.resolve("datasets", name)).parameters
    dataset = load(name, root, changes, **({"check": counts} if takes_counts else {}))
    result = data.check_images(dataset, workers) if images and not _is_features(dataset) else None
    summary = _summarize(dataset)
    if as_json:
        unreadable = None if result is None else {str(index): reason for index, reason in result.broken.items()}
        transparent, blank = (None, None) if result is None else (len(result.transparent), len(result.blank))
        counts_of_images = {"transparent": transparent, "blank": blank, "unreadable": unreadable}
        echo(json.dumps({**summary, **counts_of_images}, indent=2))
    else:
        _print(summary, result)
    if result is not None and result.broken:
        raise typer.Exit(1)


def _summarize(dataset: "Dataset") -> dict[str, Any]:
    """Items, classes and class sizes, in total and per split."""
    splits = {}
    for split in ("train", "validation", "test"):
        if (dataset.split == split).any():
            part = dataset.subset(split)
            sizes = part.class_sizes()
            splits[split] = {
                "items": len(part),
                "classes": len(part.classes),
                "smallest": int(sizes.min()),
                "median": int(sizes.median()),
                "largest": int(sizes.max()),
            }
    summary: dict[str, Any] = {"name": dataset.name, "items": len(dataset), "classes": len(dataset.classes)}
    summary["splits"] = splits
    if dataset.coarse_classes is not None:
        summary["coarse classes"] = len(dataset.coarse_classes)
    if dataset.role is not None:
        summary["roles"] = {role: int((dataset.role == role).sum()) for role in ("query", "gallery")}
    return summary


def _is_features(dataset: "Dataset") -> bool:
    first = dataset.items[0]
    return getattr(first, "ndim", 0) == 1


def _print(summary: dict[str, Any], result: "ImageCheck | None") -> None:
    from rich.table import Table

    from kinfold.cli.console import Console

    console = Console()
    counts = f"{summary['name']}: {summary['items']:,} items, {summary['classes']:,} classes"
    counts += f", {summary['coarse classes']} coarse classes" if "coarse classes" in summary else ""
    counts += "".join(f", {count:,} {role}" for role, count in summary.get("roles", {}).items())
    console.print(counts, highlight=False)
    table = Table()
    for column in ("split", "items", "classes", "smallest class", "median", "largest"):
        table.add_column(column, justify="left" if column == "split" else "right")
    for split, numbers in summary["splits"].items():
        table.add_row(split, *(f"{number:,}" for number in numbers.values()))
    console.print(table)
    if result is None:
        console.print("no image was decoded")
        return
    if result.transparent:
        console.print(
            f"{len(result.transparent):,} images have transparent pixels, which are drawn on data.background (white)",
            soft_wrap=True,
        )
    if result.blank:
        console.print(
            f"{len(result.blank):,} images have a single color; white drawings on transparent pixels need another "
            "background: --set data.background=gray of kinfold train, --background gray of kinfold embed",
            soft_wrap=True,
        )
    broken = result.broken
    for reason in [*broken.values()][:20]:
        console.print(reason, highlight=False, markup=False, soft_wrap=True)
    if len(broken) > 20:
        console.print(f"... and {len(broken) - 20:,} more")
    console.print(f"{len(broken):,} images cannot be read" if broken else "everything can be read")
