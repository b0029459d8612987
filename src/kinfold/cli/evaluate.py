"""`kinfold evaluate`: scores of a run, or of embeddings that lie in a file, wherever they were made."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kinfold.cli.plugins import Plugins
from kinfold.cli.runs import SPLIT_HELP
from kinfold.cli.terminal import echo

if TYPE_CHECKING:
    from kinfold.data.stored_embeddings import StoredEmbeddings
    from kinfold.metrics import Evaluation

DISTANCE_HELP = "cosine, dot or euclidean."


def evaluate(
    embeddings: Annotated[
        Path, typer.Argument(help="The folder of a run, or an .npz or .parquet file of embeddings and labels.")
    ],
    gallery: Annotated[
        Path | None, typer.Option(help="Another file to search in; without it, the file itself.")
    ] = None,
    metrics: Annotated[
        list[str] | None,
        typer.Option("--metrics", "-m", help="Names, separated by commas; `kinfold list metrics` shows all."),
    ] = None,
    distance: Annotated[str | None, typer.Option(help=DISTANCE_HELP)] = None,
    split: Annotated[
        str | None,
        typer.Option(help=f"{SPLIT_HELP} Of a file: short for --where split=..."),
    ] = None,
    embeddings_key: Annotated[str | None, typer.Option(help="The array of embeddings in the file.")] = None,
    labels_key: Annotated[str | None, typer.Option(help="The array of labels in the file.")] = None,
    coarse_key: Annotated[str | None, typer.Option(help="An array of coarse labels, for nmi-coarse and so on.")] = None,
    where: Annotated[
        list[str] | None, typer.Option(help="Only rows for which an array has a value, as in `split=test`.")
    ] = None,
    intervals: Annotated[
        str | None, typer.Option(help="95 % intervals over `queries`, or over `classes` (wider, and fairer).")
    ] = None,
    per_class: Annotated[str | None, typer.Option(help="Also list this metric for every class, worst first.")] = None,
    seed: Annotated[int, typer.Option(help="Start of k-means, and draws of intervals.")] = 0,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, ...; where the data is without it.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    plugin: Plugins = None,
) -> None:
    """Exact metrics of a trained run or of embeddings in a file.

    Example: `kinfold evaluate test.npz --metrics recall@1,map@r,nmi`, or `kinfold evaluate runs/first`

    Arrays called embeddings, features, feat or x, and labels, label, classes, cls or y, are found by themselves.
    """
    from kinfold.cli.progress import reporting
    from kinfold.data.stored_embeddings import read_stored_embeddings
    from kinfold.metrics import examine
    from kinfold.metrics.named import DEFAULT, uses_coarse_labels, uses_gallery

    names = [name.strip() for entry in metrics or [] for name in entry.split(",") if name.strip()]
    if per_class and names and per_class not in names:
        names.append(per_class)
    keys = {"embeddings_key": embeddings_key, "labels_key": labels_key}
    with reporting(enabled=not as_json) as progress:
        if embeddings.is_dir():
            if gallery is not None or where or any(keys.values()) or coarse_key:
                raise ValueError("a run evaluates its own data: --gallery, --where and --...-key are for files")
            queries, others, usual, about = of_run(embeddings, split, progress)
            # what the data has to offer, and these metrics do not ask for
            queries = queries if uses_coarse_labels(names or DEFAULT) else replace(queries, coarse_labels=None)
            others = others if uses_gallery(names or DEFAULT) else None
            distance = distance or usual
        else:
            where = [*(where or []), *([] if split is None else [f"split={split}"])]
            queries = read_stored_embeddings(embeddings, coarse_key=coarse_key, where=where, **keys)
            others = None if gallery is None else read_stored_embeddings(gallery, where=where, **keys)
            distance, about = distance or "cosine", {}
            if not where and len(queries.splits) > 1 and not as_json:
                echo(f"all rows, of {', '.join(queries.splits)}; --split test takes those alone", err=True)
        found = examine(
            queries.embeddings,
            queries.labels,
            None if others is None else others.embeddings,
            None if others is None else others.labels,
            names or None,
            distance,  # type: ignore[arg-type]  # checked where it is used, with the choices in the message
            device,
            coarse_labels=queries.coarse_labels,
            intervals=intervals,  # type: ignore[arg-type]
            seed=seed,
            progress=progress,
        )
    classes = found.per_class(per_class) if per_class else {}
    ranked = sorted(classes.items(), key=lambda entry: entry[1])
    if as_json:
        echo(
            json.dumps(
                about | _as_json(found.values, found.intervals, ranked, per_class, queries, others, distance), indent=2
            )
        )
        return
    from rich.table import Table

    from kinfold.cli.console import Console

    told = f"{about['split']} split of {about['run']}: " if about else ""
    told += f"{len(queries.labels):,} queries, {_classes(len(found.classes))}, "
    told += distance
    told += "" if others is None else f", gallery of {len(others.labels):,}"
    told += f", {found.left_out:,} queries without a relevant item left out" if found.left_out else ""
    console = Console(file=sys.stdout)
    console.print(told, highlight=False, markup=False, soft_wrap=True)
    if about.get("selected_on"):
        console.print("the step was chosen by its scores on these classes, which flatters them a little")
    table = Table()
    table.add_column("metric")
    table.add_column("value", justify="right")
    if found.intervals:
        table.add_column("95 % interval", justify="right")
    for name, value in found.values.items():
        limits = found.intervals.get(name)
        table.add_row(
            name, f"{value:.4f}", *([f"{limits[0]:.4f} to {limits[1]:.4f}" if limits else ""] * bool(found.intervals))
        )
    console.print(table)
    for line in _remarks(found):
        console.print(line, highlight=False)
    if ranked:
        console.print(f"{per_class} by class", highlight=False)
        listed = Table()
        listed.add_column("class")
        listed.add_column(str(per_class), justify="right")
        for label, value in ranked:
            listed.add_row(str(label), f"{value:.4f}")
        console.print(listed)


def _classes(count: int) -> str:
    return "1 class" if count == 1 else f"{count:,} classes"


def _remarks(found: "Evaluation") -> list[str]:
    """What a table of numbers leaves open."""
    said = []
    if len(found.classes) == 1:
        said.append("one class alone: whatever is found is right, and nothing is learned from that")
    if undefined := [name for name, value in found.values.items() if value != value]:
        said.append(f"nan: there is nothing among these items that {', '.join(undefined)} could be measured by")
    if found.intervals and (whole := [name for name in found.values if name not in found.intervals]):
        said.append(f"no interval: {', '.join(whole)} is of all items together, not a mean over queries")
    return said


def of_run(
    folder: Path, split: str | None, progress: "Callable[[str, float], None] | None"
) -> "tuple[StoredEmbeddings, StoredEmbeddings | None, str, dict[str, object]]":
    """Queries and, where the data tells them apart, gallery of a run, the distance it was trained for, and what to say
    of them."""
    import numpy as np

    from kinfold.cli.runs import say_unfinished, split_of
    from kinfold.data.stored_embeddings import StoredEmbeddings
    from kinfold.training import Run

    run = Run.open(folder)
    chosen, dataset = split_of(run, split)
    say_unfinished(run)
    about: dict[str, object] = {"run": str(folder), "split": chosen, "step": run.weights_step}
    about["selected_on"] = run.config.evaluation.selection == "validation" and chosen == "validation"
    found = run.embed(dataset, progress).numpy()
    labels = np.array(dataset.classes)[dataset.labels.numpy()]
    coarse = None
    if dataset.coarse is not None and dataset.coarse_classes is not None:
        coarse = np.array(dataset.coarse_classes)[dataset.coarse.numpy()]
    if dataset.role is None or not (dataset.role == "query").any():
        return StoredEmbeddings(found, labels, coarse), None, run.distance, about
    query, gallery = (dataset.role == role for role in ("query", "gallery"))
    queries = StoredEmbeddings(found[query], labels[query], None if coarse is None else coarse[query])
    return queries, StoredEmbeddings(found[gallery], labels[gallery], None), run.distance, about


def _as_json(
    values: dict[str, float],
    intervals: dict[str, tuple[float, float]],
    ranked: list[tuple[int | str, float]],
    per_class: str | None,
    queries: "StoredEmbeddings",
    others: "StoredEmbeddings | None",
    distance: str,
) -> dict[str, object]:
    from kinfold.files.documents import nan_to_null

    result: dict[str, object] = {
        "queries": len(queries.labels),
        "gallery": len((others or queries).labels),
        "distance": distance,
        "metrics": nan_to_null(values),
    }
    if intervals:
        result["intervals"] = {name: list(limits) for name, limits in intervals.items()}
    if per_class:
        result["classes"] = {str(label): value for label, value in ranked}
    return result
