"""`kinfold data audit`: probable label errors, duplicates, leakage and unusable images."""

import json
from pathlib import Path
from typing import Annotated

import typer

from kinfold.cli.datasets import Changes, load
from kinfold.cli.plugins import Plugins
from kinfold.cli.runs import open_for_use
from kinfold.cli.terminal import echo


def audit(
    name: Annotated[str, typer.Argument(help="Name of a data set; `kinfold list datasets` shows all.")],
    root: Annotated[Path | None, typer.Option(help="Folder of the data set, or file of a table.")] = None,
    run: Annotated[Path | None, typer.Option(help="A run that embeds the items, to judge labels of images.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="A .csv file for the findings.")] = None,
    page: Annotated[Path | None, typer.Option(help="An .html file that shows the findings with pictures.")] = None,
    workers: Annotated[int, typer.Option(help="Number of threads that decode images.")] = 2,
    seed: Annotated[int, typer.Option(help="Seed of the folds.")] = 0,
    changes: Changes = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of sentences.")] = False,
    plugin: Plugins = None,
) -> None:
    """Find probable label errors, duplicates, leakage between splits, hard classes and unusable images.

    Example: `kinfold data audit folder --root photos --run runs/birds --out audit.csv`

    --page audit.html shows every finding with its pictures, to confirm or to refuse, and the CSV text that follows.
    Look at it or at the CSV file, change `drop` where you disagree, and train without those items:
    `kinfold train images --root photos --drop audit.csv`.
    """
    from kinfold.audit import audit as run_audit
    from kinfold.cli.progress import show_progress
    from kinfold.files.paths import check_parent, refuse_input

    if out is not None and out.suffix.lower() != ".csv":
        raise ValueError(f"--out writes a .csv file, got {out.name!r}")
    if page is not None and page.suffix.lower() != ".html":
        raise ValueError(f"--page writes an .html file, got {page.name!r}")
    for written in (out, page):
        if written is not None:
            refuse_input(written, root)
            check_parent(written)
    dataset = load(name, root, changes)
    opened = None if run is None else open_for_use(run)
    with show_progress(enabled=not as_json) as progress:
        result = run_audit(dataset, opened, workers=workers, seed=seed, progress=progress)
    if out is not None:
        result.to_csv(out)
    if page is not None:
        from kinfold.report.audit_page import write_audit_page

        write_audit_page(result, dataset, page)
    if as_json:
        echo(json.dumps(result.to_dict(), indent=2))
        return
    for line in result.describe():
        echo(line)
    for finding in result.findings[:20]:
        echo(f"  row {finding.row}: {finding.kind}: {finding.reason}" + (f" [{finding.item}]" if finding.item else ""))
    if len(result.findings) > 20:
        echo(f"  ... and {len(result.findings) - 20:,} more" + ("" if out else "; --out FILE.csv writes all"))
    if out is not None:
        echo(f"{out}: {len(result.findings):,} findings")
    if page is not None:
        echo(f"{page}: open it in a browser")
