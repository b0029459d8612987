"""`kinfold evaluate`: metrics of a run, or of embeddings in a file."""

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kinfold.cli.plugins import Plugins
from kinfold.cli.runs import SPLIT_HELP
from kinfold.cli.terminal import echo

if TYPE_CHECKING:
    from rich.table import Table

    from kinfold.data.label_table import LabelTable
    from kinfold.data.stored_embeddings import StoredEmbeddings
    from kinfold.metrics import Distance, Evaluation

DISTANCE_HELP = "cosine, dot, euclidean or hyperbolic."


def evaluate(
    embeddings: Annotated[
        Path, typer.Argument(help="Folder of a run, or an .npz or .parquet file with embeddings and labels.")
    ],
    gallery: Annotated[
        Path | None, typer.Option(help="File with the gallery; by default, the queries search each other.")
    ] = None,
    metrics: Annotated[
        list[str] | None,
        typer.Option("--metrics", "-m", help="Names separated by commas; `kinfold list metrics` shows all."),
    ] = None,
    distance: Annotated[str | None, typer.Option(help=DISTANCE_HELP)] = None,
    split: Annotated[
        str | None,
        typer.Option(help=f"{SPLIT_HELP} Of a file: the same as --where split=..."),
    ] = None,
    embeddings_key: Annotated[str | None, typer.Option(help="Name of the array of embeddings in the file.")] = None,
    labels_key: Annotated[str | None, typer.Option(help="Name of the array of labels in the file.")] = None,
    coarse_key: Annotated[
        str | None, typer.Option(help="Name of an array of coarse labels, for nmi-coarse and so on.")
    ] = None,
    levels_key: Annotated[
        str | None,
        typer.Option(help="Name of an array of levels, as in birds/owls/snowy owl, for ndcg@k and hap."),
    ] = None,
    tags_key: Annotated[
        str | None, typer.Option(help="Name of an array of tags, as in red;round, for ndcg@k and hap.")
    ] = None,
    where: Annotated[
        list[str] | None, typer.Option(help="Only rows in which an array has a value, such as `split=test`.")
    ] = None,
    intervals: Annotated[
        str | None,
        typer.Option(
            help="95 % intervals over `queries`, or over `classes` (wider, for conclusions about new classes)."
        ),
    ] = None,
    per_class: Annotated[str | None, typer.Option(help="Also list this metric per class, lowest first.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of k-means and of the intervals.")] = 0,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, ...; by default, where the data is.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    plugin: Plugins = None,
) -> None:
    """Compute exact metrics of a trained run or of embeddings in a file.

    Example: `kinfold evaluate test.npz --metrics recall@1,map@r,nmi`, or `kinfold evaluate runs/first`

    Arrays named embeddings, features, feat or x, and labels, label, classes, cls or y, are recognized.
    """
    from kinfold.cli.progress import show_progress
    from kinfold.data.stored_embeddings import read_stored_embeddings, relate_stored
    from kinfold.metrics import examine
    from kinfold.metrics.graded import is_graded_metric
    from kinfold.metrics.lookup import DEFAULT_METRICS, uses_coarse_labels, uses_gallery

    names = [name.strip() for entry in metrics or [] for name in entry.split(",") if name.strip()]
    if metrics and not names:
        raise ValueError("--metrics names no metric: give some, as in --metrics recall@1,map@r, or leave it out")
    if per_class and names and per_class not in names:
        names.append(per_class)
    graded = [name for name in names if is_graded_metric(name)]
    plain = [name for name in names or DEFAULT_METRICS if name not in graded]
    if graded and per_class in graded:
        raise ValueError(f"--per-class lists metrics of classes, and {per_class} compares related items")
    if graded and intervals:
        raise ValueError(f"--intervals are not computed for {', '.join(graded)}: evaluate other metrics with them")
    keys = {"embeddings_key": embeddings_key, "labels_key": labels_key}
    related_key, table = levels_key or tags_key, None
    with show_progress(enabled=not as_json) as progress:
        if embeddings.is_dir():
            if gallery is not None or where or any(keys.values()) or coarse_key or related_key:
                raise ValueError("a run evaluates its own data: --gallery, --where and --...-key are for files")
            queries, others, table, run_distance, about = _embed_run(embeddings, split, progress)
            # drop what these metrics do not use
            queries = queries if uses_coarse_labels(plain) else replace(queries, coarse_labels=None)
            others = others if graded or uses_gallery(plain) else None
            compared = distance or run_distance
        else:
            if levels_key and tags_key:
                raise ValueError("items are related by --levels-key or by --tags-key, not by both")
            if related_key and not graded:
                raise ValueError("levels and tags are for ndcg@k and hap: add -m ndcg@10,hap, or leave the key out")
            where = [*(where or []), *([] if split is None else [f"split={split}"])]
            options: dict[str, Any] = {**keys, "related_key": related_key}
            queries = read_stored_embeddings(embeddings, coarse_key=coarse_key, where=where, **options)
            others = None if gallery is None else read_stored_embeddings(gallery, where=where, **options)
            if related_key:
                table = relate_stored("levels" if levels_key else "tags", queries, others)
            compared, about = distance or "cosine", {}
            if not where and len(queries.splits) > 1 and not as_json:
                echo(f"all rows, of {', '.join(queries.splits)}; --split test takes those alone", err=True)
        references = None if graded and not uses_gallery(plain) else others
        evaluation = examine(
            queries.embeddings,
            queries.labels,
            None if references is None else references.embeddings,
            None if references is None else references.labels,
            plain,
            compared,  # type: ignore[arg-type]  # checked where it is used, with the choices in the message
            device,
            coarse_labels=queries.coarse_labels,
            intervals=intervals,  # type: ignore[arg-type]
            seed=seed,
            progress=progress,
        )
        if graded:
            related = _compute_graded(graded, queries, others, table, compared, device)  # type: ignore[arg-type]
            merged = {**evaluation.values, **related}
            evaluation = replace(evaluation, values={name: merged[name] for name in names})
    class_values = evaluation.per_class(per_class) if per_class else {}
    ranked = sorted(class_values.items(), key=lambda entry: entry[1])
    if as_json:
        about |= {"queries": len(queries.labels), "gallery": len((others or queries).labels), "distance": compared}
        echo(json.dumps(about | _as_json(evaluation, ranked), indent=2))
        return
    from kinfold.cli.console import Console

    title = f"{about['split']} split of {about['run']}: " if about else ""
    title += f"{len(queries.labels):,} queries, {_count_classes(len(evaluation.classes))}, {compared}"
    title += "" if others is None else f", gallery of {len(others.labels):,}"
    if plain and (skipped := evaluation.skipped_queries):
        title += f", {skipped:,} queries without a relevant item left out"
    console = Console(file=sys.stdout)
    console.print(title, highlight=False, markup=False, soft_wrap=True)
    if about.get("selected_on"):
        console.print("the step was selected by its scores on these classes, so the scores are slightly optimistic")
    limits = {name: f"{low:.4f} to {high:.4f}" for name, (low, high) in evaluation.intervals.items()}
    values = [(name, f"{value:.4f}", limits.get(name, "")) for name, value in evaluation.values.items()]
    headings = ("metric", "value", "95 % interval") if limits else ("metric", "value")
    console.print(_build_table(headings, values))
    for line in _remarks(evaluation):
        console.print(line, highlight=False)
    if ranked:
        console.print(f"{per_class} by class", highlight=False)
        rows = [(str(label), f"{value:.4f}") for label, value in ranked]
        console.print(_build_table(("class", str(per_class)), rows))


def _build_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> "Table":
    """A table whose first column is aligned to the left; cells without a heading are left out."""
    from rich.table import Table

    table = Table()
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="right" if number else "left")
    for row in rows:
        table.add_row(*row[: len(headings)])
    return table


def _count_classes(count: int) -> str:
    return "1 class" if count == 1 else f"{count:,} classes"


def _remarks(evaluation: "Evaluation") -> list[str]:
    """Explanations of values that the table cannot show."""
    remarks = []
    if len(evaluation.classes) == 1:
        remarks.append("there is only one class: every neighbor is correct, so the scores mean nothing")
    if undefined := [name for name, value in evaluation.values.items() if value != value]:
        remarks.append(f"nan: {', '.join(undefined)} cannot be computed for these items")
    if evaluation.intervals and (without := [name for name in evaluation.values if name not in evaluation.intervals]):
        remarks.append(f"no interval: {', '.join(without)} is a value of all items, not a mean over queries")
    return remarks


def _embed_run(
    folder: Path, split: str | None, progress: "Callable[[str, float], None] | None"
) -> "tuple[StoredEmbeddings, StoredEmbeddings | None, LabelTable | None, Distance, dict[str, object]]":
    """Queries, gallery if the data has one, labels that relate them, distance of the run, description of the run."""
    import numpy as np

    from kinfold.cli.runs import select_split, warn_unfinished
    from kinfold.data.stored_embeddings import StoredEmbeddings
    from kinfold.embedding.kept import embed_items
    from kinfold.training import Run

    run = Run.open(folder)
    chosen, dataset = select_split(run, split)
    warn_unfinished(run)
    about: dict[str, object] = {"run": str(folder), "split": chosen, "step": run.weights_step}
    about["selected_on"] = run.config.evaluation.selection == "validation" and chosen == "validation"
    embeddings = embed_items(run, dataset, progress).numpy()
    labels = np.array(dataset.classes)[dataset.labels.numpy()]
    coarse = None
    if dataset.coarse is not None and dataset.coarse_classes is not None:
        coarse = np.array(dataset.coarse_classes)[dataset.coarse.numpy()]
    if dataset.role is None or not (dataset.role == "query").any():
        return StoredEmbeddings(embeddings, labels, coarse), None, dataset.label_table, run.distance, about
    query, gallery = ((dataset.role == role).nonzero()[0] for role in ("query", "gallery"))
    queries = StoredEmbeddings(embeddings[query], labels[query], None if coarse is None else coarse[query])
    others = StoredEmbeddings(embeddings[gallery], labels[gallery], None)
    table = None if dataset.label_table is None else dataset.label_table.take(np.concatenate([query, gallery]))
    return queries, others, table, run.distance, about


def _compute_graded(
    names: list[str],
    queries: "StoredEmbeddings",
    gallery: "StoredEmbeddings | None",
    table: "LabelTable | None",
    distance: "Distance",
    device: str | None,
) -> dict[str, float]:
    """Metrics of related items; the rows of the table are those of the queries, then those of the gallery."""
    from kinfold.metrics import evaluate_graded

    if table is None:
        raise ValueError(
            f"{', '.join(names)} compares related items: name levels or tags, with --levels-key or --tags-key for a "
            "file, with --set data.options.columns.levels=COLUMN when a run is trained"
        )
    relevance, others = table.relate_queries(len(queries.labels)), None if gallery is None else gallery.embeddings
    return evaluate_graded(queries.embeddings, relevance, others, names, distance, device=device)


def _as_json(evaluation: "Evaluation", ranked: list[tuple[int | str, float]]) -> dict[str, object]:
    from kinfold.files.documents import nan_to_null

    result: dict[str, object] = {"metrics": nan_to_null(evaluation.values)}
    if evaluation.intervals:
        result["intervals"] = {name: list(limits) for name, limits in evaluation.intervals.items()}
    if ranked:
        result["classes"] = {str(label): value for label, value in ranked}
    return result
