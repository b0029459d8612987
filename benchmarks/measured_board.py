"""The board of this project: the benches behind docs/results.md that are at hand, as one page and one file.

    python -m benchmarks.measured_board results/backbones results/shift/shift-*
    python -m benchmarks.measured_board results/backbones --replay "backbones/lite0/lifted, spc-5" --root lite0.npz

Checks the benches and writes two files into docs/board: board.md, the tables, and entries.json, for each entry its
scores, starts, time, recipe, the fingerprints of data and code, and the sha256 of its result files. entries.json has a
checksum of its own, and board.md is made from what it holds; without a bench, the command makes board.md again. Entries
of benches that are not given stay. With --replay, one entry is trained again, and what came out is kept with it; with
ATEN_CPU_CAPABILITY=default in the environment, it runs with the instructions of another processor.
"""

import argparse
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from kinfold.board import Board, BoardEntry, Panel, read_entries, replay_entry
from kinfold.experiments import Bench
from kinfold.files.atomic import write_text
from kinfold.files.documents import read_result, write_result

FOLDER = Path(__file__).parent.parent / "docs" / "board"
SHAPE = {"entries": [{str: object}]}
HEAD = """# The measured board

The benches {benches}: every method on every data set, in groups instead of ranks. One command makes this page from
their result files: `python -m benchmarks.measured_board BENCH...`.
[Comparing methods](../bench.md#a-board-of-many-benches) says how to read it, and [results](../results.md) what the
numbers mean. The suites are in `benchmarks/suites`, that of the shift ladder in `benchmarks/shift.py`. `entries.json`,
beside this page, has the recipe of every entry, the fingerprint of its data and the sha256 of its result
files.
"""


def describe_entry(entry: BoardEntry) -> dict[str, Any]:
    """Return an entry as plain data, without the folder of its data and the list of its files."""
    tables = dict(entry.tables)
    tables["data"] = {**tables["data"], "root": Path(tables["data"]["root"]).name}
    numbers = {
        name: {str(seed): value for seed, value in getattr(entry, name).items()} for name in ("values", "starts")
    }
    plain = {**asdict(replace(entry, files={}, codes=())), **numbers, "tables": tables, "codes": list(entry.codes)}
    return {**plain, "digest": entry.digest, "replays": []}


def restore_entry(table: dict[str, Any]) -> BoardEntry:
    """Return the entry of plain data; only its list of files is lost."""
    numbers = {name: {int(seed): value for seed, value in table[name].items()} for name in ("values", "starts")}
    rest = {name: value for name, value in table.items() if name not in ("digest", "replays")}
    return BoardEntry(**{**rest, **numbers, "codes": tuple(table["codes"])})


def name_entry(table: dict[str, Any]) -> str:
    """Return the name of an entry, BENCH/DATA/METHOD."""
    return "/".join(table[part] for part in ("bench", "data", "method"))


def read_tables(folder: Path) -> list[dict[str, Any]]:
    """Read entries.json and check its checksum; no entries where there is no file."""
    path = folder / "entries.json"
    tables: list[dict[str, Any]] = read_result(path, SHAPE)["entries"] if path.is_file() else []
    return tables


def format_page(tables: list[dict[str, Any]]) -> str:
    """Return board.md."""
    panels: dict[tuple[str, ...], dict[str, BoardEntry]] = {}
    for entry in map(restore_entry, tables):
        key = (entry.data, entry.backbone, entry.protocol, entry.metric, entry.result)
        panels.setdefault(key, {})[entry.method] = entry
    benches = ", ".join(dict.fromkeys(table["bench"] for table in tables))
    board = Board([Panel(panel) for panel in panels.values()])
    parts = [HEAD.format(benches=benches), board.table("markdown")]
    replays = [(name_entry(table), replayed) for table in tables for replayed in table["replays"]]
    if replays:
        lines = [f"- `{name}`, seed {r['seed']}: {r['before']!r} on the board, {r['now']!r} again: {r['verdict']}."
                 for name, r in replays]  # fmt: skip
        parts.append("\n".join(["## Entries that were trained again", "", *lines, ""]))
    return "\n".join(parts)


def write(tables: list[dict[str, Any]], folder: Path) -> None:
    """Write entries.json and board.md."""
    folder.mkdir(parents=True, exist_ok=True)
    write_result(folder / "entries.json", {"entries": tables})
    write_text(folder / "board.md", format_page(tables))


def replay(entry: BoardEntry, folder: Path, root: Path | None) -> list[dict[str, Any]]:
    """Train an entry again with its first seed, and return what came out."""
    result = replay_entry(entry, folder, root=root)
    code = "with the same code" if result.is_same_code else "with other code"
    state = "identical" if result.is_identical else f"differs by {result.largest_difference:.2g}"
    processor = f"{torch.backends.cpu.get_cpu_capability()} instructions"
    return [{"seed": seed, "before": result.before[seed], "now": now, "verdict": f"{state}, {code} and {processor}"}
            for seed, now in result.now.items()]  # fmt: skip


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benches", nargs="*", type=Path)
    parser.add_argument("--replay", help="an entry to train again, BENCH/DATA/METHOD")
    parser.add_argument("--root", type=Path, help="with --replay: the data, if it is elsewhere now")
    parser.add_argument("--out", type=Path, default=Path("results/replay"), help="with --replay: folder of the runs")
    options = parser.parse_args()
    tables = {name_entry(table): table for table in read_tables(FOLDER)}
    for bench in options.benches:
        for entry in read_entries(Bench.open(bench)):
            described = describe_entry(entry)
            kept = tables.get(entry.name, described)
            if kept["digest"] == described["digest"]:
                described["replays"] = kept["replays"]
            tables[entry.name] = described
            if options.replay == entry.name:
                described["replays"] += replay(
                    entry, options.out / bench.name / entry.data / entry.method, options.root
                )
    write([*tables.values()], FOLDER)


if __name__ == "__main__":
    main()
