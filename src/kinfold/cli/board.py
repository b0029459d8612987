"""`kinfold board`: many benches on one page, and entries run again."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kinfold.cli.plugins import Plugins
from kinfold.cli.terminal import echo

if TYPE_CHECKING:
    from kinfold.board import Board


def board(
    folders: Annotated[list[Path], typer.Argument(help="Folders of benches.", metavar="BENCH...")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for board.md and board.html.")] = Path("board"),
    claims: Annotated[
        Path | None, typer.Option(help="A .toml file with published numbers to show beside the measured ones.")
    ] = None,
    replay: Annotated[
        str | None, typer.Option(help="Run this entry again, BENCH/DATA/METHOD, and compare the scores.")
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(help="With --replay: the repeats to run again, as in 0,1; the first if left out.")
    ] = None,
    root: Annotated[
        Path | None, typer.Option(help="With --replay: folder or file of the data, if it is elsewhere now.")
    ] = None,
    tolerance: Annotated[
        float, typer.Option(help="With --replay: the difference of a score that still agrees, as 0.01.")
    ] = 0.01,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    plugin: Plugins = None,
) -> None:
    """Put the results of many benches on one page, and run single entries again.

    Example: `kinfold board bench/birds bench/flowers --out board`

    Methods that are not significantly different share a group instead of having ranks. Results whose data, code or
    configuration is not what their checksums say are refused. A replay that does not agree has exit code 1.
    """
    from kinfold.board import Board, read_claims

    if out.is_file():
        raise ValueError(f"--out is a folder, and {out} is a file")
    if not tolerance >= 0:
        raise ValueError(f"--tolerance must be at least 0, got {tolerance:g}")
    opened = Board.open(folders, [] if claims is None else read_claims(claims))
    if replay is not None:
        _replay(opened, replay, out, seeds, root, tolerance, as_json)
        return
    if seeds is not None or root is not None:
        raise ValueError("--seeds and --root belong to --replay")
    files = opened.write(out)
    if as_json:
        entries = [{**asdict(entry), "name": entry.name, "digest": entry.digest} for entry in opened.entries]
        groups = [{"panel": panel.title, "groups": panel.groups} for panel in opened.panels]
        echo(json.dumps({"files": [str(path) for path in files], "groups": groups, "entries": entries}, indent=2))
        return
    echo(opened.table(), nl=False)
    echo(f"{out}: {', '.join(path.name for path in files)}")


def _replay(
    opened: "Board", name: str, out: Path, seeds: str | None, root: Path | None, tolerance: float, as_json: bool
) -> None:
    from kinfold.board import replay_entry

    entry = opened.find_entry(name)
    chosen = None if seeds is None else _parse_seeds(seeds)
    folder = out / "replay" / entry.bench / entry.data / entry.method
    result = replay_entry(entry, folder, seeds=chosen, root=root)
    agrees = result.agrees(tolerance)
    if as_json:
        summary = {"identical": result.is_identical, "agrees": agrees, "difference": result.largest_difference}
        echo(json.dumps({**asdict(result), **summary}, indent=2))
    else:
        for seed, value in result.now.items():
            echo(f"seed {seed}: {result.before[seed]:.6f} on the board, {value:.6f} now")
        code = "the same code" if result.is_same_code else "other code than the entry"
        state = "identical" if result.is_identical else f"largest difference {result.largest_difference:.2g}"
        verdict = "agrees" if agrees else f"does not agree within {tolerance:g}"
        echo(f"{entry.name}: {verdict}; {state}, with {code}; runs in {folder}")
    if not agrees:
        raise typer.Exit(1)


def _parse_seeds(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"--seeds takes integers separated by commas, as in 0,1; got {text!r}") from None
