"""`kinfold compress`: the smallest dimension and precision of embeddings that is not significantly worse."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from kinfold.cli.datasets import Changes, load
from kinfold.cli.terminal import echo


def compress(
    data: Annotated[Path, typer.Argument(help="A feature file with labels: .npz, .npy or .parquet.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write the chosen codes to this .npz file.")] = None,
    dims: Annotated[str | None, typer.Option(help="Dimensions, as in 512,128; else all and halves of it.")] = None,
    metric: Annotated[str, typer.Option(help="What is measured, a retrieval metric.")] = "recall@1",
    split: Annotated[
        str | None, typer.Option(help="Measure on this split; else on test, where the file has one.")
    ] = None,
    changes: Changes = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the table as JSON.")] = False,
) -> None:
    """Measure fewer dimensions, int8 and binary codes; choose the smallest that is not significantly worse than full.

    Example: `kinfold compress embeddings.npz --out small.npz`

    Dimensions are cut from the end, as training.nested_dims and principal components order them.
    """
    import torch
    from rich.table import Table

    from kinfold.cli.console import Console
    from kinfold.data import Rows
    from kinfold.embedding import choose_size, compare_sizes, quantize

    dataset = load("features", data, changes)
    split = "test" if split is None and (dataset.split == "test").any() else split
    measured = dataset if split is None else dataset.subset(split)
    assert isinstance(dataset.items, Rows)
    assert isinstance(measured.items, Rows)
    lengths = None if dims is None else [int(part) for part in dims.split(",")]
    rows = compare_sizes(torch.as_tensor(measured.items.array()).float(), measured.labels, lengths, metric=metric)
    chosen = choose_size(rows)
    if out is not None:
        codes = quantize(torch.as_tensor(dataset.items.array()).float(), chosen.precision, chosen.dim)
        codes.save(out, dataset.labels.numpy())
    if as_json:
        table: dict[str, Any] = {"metric": metric, "rows": [asdict(row) for row in rows], "chosen": asdict(chosen)}
        echo(json.dumps(table, indent=2))
        return
    columns = Table()
    for name in ("dimensions", "precision", "bytes", f"{metric} (95 %)", "significantly worse"):
        columns.add_column(name, justify="right")
    for row in rows:
        score = f"{100 * row.score:.2f} ({100 * row.low:.2f} to {100 * row.high:.2f})"
        columns.add_row(str(row.dim), row.precision, str(row.bytes), score, "yes" if row.worse else "no")
    Console(file=sys.stdout).print(columns)
    echo(
        f"smallest that is not significantly worse: {chosen.dim} dimensions in {chosen.precision}, {chosen.bytes} bytes"
    )
    if out is not None:
        echo(f"{out}: {len(dataset):,} rows")
