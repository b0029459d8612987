"""`kinfold compress`: the smallest dimension and precision of embeddings that is not significantly worse."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kinfold.cli.datasets import Changes, load
from kinfold.cli.runs import open_for_use
from kinfold.cli.terminal import echo

if TYPE_CHECKING:
    from kinfold.embedding import SizeRow


def compress(
    data: Annotated[
        Path, typer.Argument(help="A feature file with labels (.npz, .npy, .parquet), or the folder of a run.")
    ],
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

    Of a run, the size is stored in its folder, and `kinfold export` writes it.

    Dimensions are cut from the end, as training.nested_dims and principal components order them.
    """
    if out is not None and out.suffix != ".npz":
        raise ValueError(f"--out writes an .npz file, got {out.name!r}")
    try:
        lengths = None if dims is None else [int(part) for part in dims.split(",")]
    except ValueError:
        raise ValueError(f"--dims must be integers, as in 512,128; got {dims!r}") from None
    count = 0
    if data.is_dir():
        rows, chosen = _compress_run(data, out, changes, lengths, metric, split)
    else:
        rows, chosen, count = _compress_file(data, out, changes, lengths, metric, split)
    if as_json:
        table: dict[str, Any] = {"metric": metric, "rows": [asdict(row) for row in rows], "chosen": asdict(chosen)}
        echo(json.dumps(table, indent=2))
        return
    from rich.table import Table

    from kinfold.cli.console import Console

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
        echo(f"{out}: {count:,} rows")
    elif data.is_dir():
        echo(f"kinfold export {data} writes it")


def _compress_file(
    data: Path, out: Path | None, changes: list[str] | None, dims: list[int] | None, metric: str, split: str | None
) -> "tuple[Sequence[SizeRow], SizeRow, int]":
    """Measure sizes of the rows of a feature file, and write the codes of the chosen one."""
    import torch

    from kinfold.data import Rows
    from kinfold.embedding import choose_size, compare_sizes, quantize
    from kinfold.files.paths import check_parent, refuse_input

    if out is not None:
        refuse_input(out, data)
        check_parent(out)
    dataset = load("features", data, changes)
    split = "test" if split is None and (dataset.split == "test").any() else split
    measured = dataset if split is None else dataset.subset(split)
    assert isinstance(dataset.items, Rows)
    assert isinstance(measured.items, Rows)
    rows = compare_sizes(torch.as_tensor(measured.items.array()).float(), measured.labels, dims, metric=metric)
    chosen = choose_size(rows)
    if out is not None:
        codes = quantize(torch.as_tensor(dataset.items.array()).float(), chosen.precision, chosen.dim)
        codes.save(out, dataset.labels.numpy())
    return rows, chosen, len(dataset)


def _compress_run(
    run: Path, out: Path | None, changes: list[str] | None, dims: list[int] | None, metric: str, split: str | None
) -> "tuple[Sequence[SizeRow], SizeRow]":
    """Measure sizes of the embeddings of a run, and store the chosen one in its folder."""
    from kinfold.cli.progress import show_progress
    from kinfold.embedding import choose_run_size

    if out is not None or changes:
        name = "--out" if out is not None else "--set"
        raise ValueError(f"{run} is a run, whose chosen size is stored in its folder: leave {name} out")
    with show_progress() as progress:
        size = choose_run_size(open_for_use(run), dims, metric=metric, split=split, progress=progress)
    return size.rows, size.chosen
