"""`kinfold report`: one offline page about a run or a benchmark."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from kinfold.cli.plugins import Plugins
from kinfold.cli.terminal import echo


def report(
    folder: Annotated[
        Path, typer.Argument(help="The folder of a run, of a bench, or of several runs.", metavar="RUN_OR_BENCH")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The .html file; else report.html in that folder.")
    ] = None,
    figures: Annotated[
        Path | None, typer.Option(help="A folder for all figures as .png and .svg, and tables as .md and .tex.")
    ] = None,
    points: Annotated[int, typer.Option(help="How many items a map shows at most.")] = 3000,
    methods: Annotated[
        str | None,
        typer.Option(help="Methods whose embedding spaces are shown, separated by commas, or all; else the best ones."),
    ] = None,
    images: Annotated[
        Path | None,
        typer.Option(help="The folder with the images of a feature file, to which its column path is relative."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print what was written, and what is missing, as JSON.")
    ] = False,
    plugin: Plugins = None,
) -> None:
    """Write one self-contained page: results, training curves, maps, queries, curves, spectra, pair weights.

    Example: `kinfold report bench/glyphs --out glyphs.html --figures figures`

    The page needs no network and no server. Maps are computed once and cached in the runs. The page lists what it
    cannot show.
    """
    from kinfold.cli.progress import show_progress
    from kinfold.files.paths import check_parent, describe_missing
    from kinfold.optional import import_optional
    from kinfold.report import collect_content, write_figures, write_page

    page = folder / "report.html" if out is None else out
    if page.suffix.lower() not in (".html", ".htm"):  # before the long work
        raise ValueError(f"--out writes an .html file, got {page.name!r}")
    if out is not None:
        check_parent(out)
    if images is not None and not images.is_dir():
        raise ValueError(f"--images: {describe_missing(images, 'folder')}; it holds the images of the column path")
    if figures is not None and figures.is_file():
        raise ValueError(f"--figures writes into a folder, and {figures} is a file")
    if figures is not None:
        import_optional("matplotlib", "matplotlib", "report", "--figures")
    with show_progress(enabled=not as_json) as progress:
        chosen = [] if methods is None else [name.strip() for name in methods.split(",") if name.strip()]
        content = collect_content(folder, points, methods=chosen, images=images, progress=progress)
    write_page(content, page)
    paths = [] if figures is None else write_figures(content, figures)
    if as_json:
        summary: dict[str, Any] = {"page": str(page), "figures": [str(path) for path in paths]}
        summary |= {key: content[key] for key in ("kind", "about", "inflated", "missing", "tables")}
        summary["spaces"] = [
            {key: space[key] for key in ("name", "data", "split", "count", "shown")} for space in content["spaces"]
        ]
        echo(json.dumps(summary, indent=2))
        return
    for sentence in content["missing"]:
        echo(f"- {sentence}")
    if figures is not None:
        echo(f"{figures}: {len(paths)} files")
    echo(f"{page}")
