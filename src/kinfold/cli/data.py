"""`kinfold data`: look at a data set before anything is trained on it."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kinfold.cli.datasets import Changes, load
from kinfold.cli.plugins import Plugins
from kinfold.cli.terminal import echo

if TYPE_CHECKING:
    from kinfold.data import Dataset, ImageCheck

app = typer.Typer(help="Data sets: what is there, and whether it can be read.", no_args_is_help=True)


@app.command("check")
def check(
    name: Annotated[str, typer.Argument(help="A name that `kinfold list datasets` shows.")],
    root: Annotated[Path | None, typer.Option(help="The folder of the data set, or the file of a table.")] = None,
    counts: Annotated[bool, typer.Option(help="Compare with the counts of the papers.")] = True,
    images: Annotated[bool, typer.Option(help="Decode every image once.")] = True,
    workers: Annotated[int, typer.Option(help="Threads that decode.")] = 2,
    changes: Changes = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    plugin: Plugins = None,
) -> None:
    """Counts, splits, class sizes, transparent images, and files that cannot be read: exit code 1 if there are any.

    Example: `kinfold data check cub --root CUB_200_2011`
    """
    import inspect

    from kinfold import data, registry

    takes_counts = "check" in inspect.signature(registry.resolve("datasets", name)).parameters
    dataset = load(name, root, changes, **({"check": counts} if takes_counts else {}))
    looked = images and not _is_features(dataset)
    checked = data.check_images(dataset, workers) if looked else data.ImageCheck({}, [])
    broken = checked.broken
    found = summary(dataset)
    if as_json:
        unreadable = {str(i): why for i, why in broken.items()} if looked else None
        transparent = len(checked.transparent) if looked else None
        echo(json.dumps({**found, "transparent": transparent, "unreadable": unreadable}, indent=2))
    else:
        _show(found, checked if looked else None)
    if broken:
        raise typer.Exit(1)


def summary(dataset: "Dataset") -> dict[str, Any]:
    """Items, classes and class sizes, in all and in each split."""
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
    found: dict[str, Any] = {"name": dataset.name, "items": len(dataset), "classes": len(dataset.classes)}
    found["splits"] = splits
    if dataset.coarse_classes is not None:
        found["coarse classes"] = len(dataset.coarse_classes)
    if dataset.role is not None:
        found["roles"] = {role: int((dataset.role == role).sum()) for role in ("query", "gallery")}
    return found


def _is_features(dataset: "Dataset") -> bool:
    first = dataset.items[0]
    return getattr(first, "ndim", 0) == 1


def _show(found: dict[str, Any], checked: "ImageCheck | None") -> None:
    from rich.table import Table

    from kinfold.cli.console import Console

    console = Console()
    told = f"{found['name']}: {found['items']:,} items, {found['classes']:,} classes"
    told += f", {found['coarse classes']} coarse classes" if "coarse classes" in found else ""
    if "roles" in found:
        told += "".join(f", {count:,} {role}" for role, count in found["roles"].items())
    console.print(told, highlight=False)
    table = Table()
    for column in ("split", "items", "classes", "smallest class", "median", "largest"):
        table.add_column(column, justify="left" if column == "split" else "right")
    for split, numbers in found["splits"].items():
        table.add_row(split, *(f"{number:,}" for number in numbers.values()))
    console.print(table)
    if checked is None:
        console.print("no image was decoded")
        return
    if checked.transparent:
        console.print(
            f"{len(checked.transparent):,} images have transparent pixels, which are drawn on data.background (white)",
            soft_wrap=True,
        )
    broken = checked.broken
    for why in [*broken.values()][:20]:
        console.print(why, highlight=False, markup=False, soft_wrap=True)
    if len(broken) > 20:
        console.print(f"... and {len(broken) - 20:,} more")
    console.print(f"{len(broken):,} images cannot be read" if broken else "everything can be read")
