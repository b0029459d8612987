"""One offline page of the files that `python -m benchmarks.gpu` writes.

python -m benchmarks.gpu_page results/gpu --out results/gpu/index.html
"""

import argparse
import json
from html import escape
from pathlib import Path
from typing import Any

from benchmarks.gpu import SCHEMA, VERSION

PEER = "pytorch-metric-learning"
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; color: #222; }
table { border-collapse: collapse; margin: 0.5rem 0 1.5rem; }
th, td { padding: 0.2rem 0.8rem; border-bottom: 1px solid #ddd; text-align: right; }
th:first-child, td:first-child { text-align: left; }
.fails { color: #b00020; font-weight: 600; }
@media (prefers-color-scheme: dark) { body { background: #161616; color: #e6e6e6; } th, td { border-color: #444; } }
"""


def read(path: Path) -> dict[str, Any]:
    """Read a file of results.

    Raises:
        ValueError: It is no such file, or one of another version.
    """
    try:
        results = json.loads(path.read_text())
    except (ValueError, OSError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from None
    if not isinstance(results, dict) or results.get("schema") != SCHEMA:
        raise ValueError(f"{path} is no file of python -m benchmarks.gpu")
    if results.get("version") != VERSION:
        raise ValueError(f"{path} has version {results.get('version')}; this code reads version {VERSION}")
    return results


def make_page(files: dict[str, dict[str, Any]]) -> str:
    """Return the HTML of several results by file name."""
    parts = [_make_section(name, results) for name, results in files.items()]
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>kinfold on GPUs</title>'
        f"<style>{STYLE}</style><h1>kinfold on GPUs</h1><p>{len(files)} files. Times are medians of one call with its "
        f"gradient; the ratio is kinfold / {PEER}, below 1 kinfold is faster.</p>{''.join(parts)}</html>"
    )


def _make_section(name: str, results: dict[str, Any]) -> str:
    environment = results["environment"]
    versions = ", ".join(f"{package} {version}" for package, version in environment["versions"].items())
    memory = environment.get("memory_bytes")
    hardware = environment["device"] + (f", {memory / 2**30:.0f} GB" if memory else "")
    note = " Tiny sizes: the times say nothing about speed." if results["sizes"] == "tiny" else ""
    left_out = f" Left out: {', '.join(results['left_out'])}." if results["left_out"] else ""
    checks = results["correctness"]
    failures = [row for row in checks if row["status"] == "fails"]
    lines = [
        f"<h2>{escape(hardware)}</h2><p>{escape(name)}, {escape(results['created'])}, {escape(versions)}, "
        f"Python {escape(environment['python'])}, {escape(environment['system'])} {escape(environment['machine'])}."
        f"{note}{escape(left_out)}</p>",
        f"<h3>Correctness</h3><p>{sum(row['status'] == 'holds' for row in checks)} of {len(checks)} hold, "
        f'<span class="{"fails" if failures else ""}">{len(failures)} fail</span>.</p>',
    ]
    if failures:
        lines.append(_make_table(["check", "observed"], [[row["name"], row["message"]] for row in failures]))
    for part, keys in (
        ("losses", ["loss", "batch", "dim"]),
        ("evaluation", ["items", "dim"]),
        ("training", ["backbone", "images", "pixels", "precision"]),
    ):
        rows = [[*(str(row[key]) for key in keys), *_format(row)] for row in results[part]]
        head = [*keys, "kinfold ms", f"{PEER} ms", "ratio", "kinfold MB", f"{PEER} MB"]
        lines.append(f"<h3>{part.capitalize()}</h3>{_make_table(head, rows)}")
    return "".join(lines)


def _format(row: dict[str, Any]) -> list[str]:
    ours, peer = row["kinfold"], row.get(PEER, {})
    ratio = f"{ours['seconds'] / peer['seconds']:.2f}" if "seconds" in ours and "seconds" in peer else ""
    times = [entry.get("error", "") if "error" in entry else _milliseconds(entry) for entry in (ours, peer)]
    memory = [f"{entry['bytes'] / 1e6:.1f}" if entry.get("bytes") is not None else "" for entry in (ours, peer)]
    return [*times, ratio, *memory]


def _milliseconds(entry: dict[str, Any]) -> str:
    return f"{1000 * entry['seconds']:.2f}" if "seconds" in entry else ""


def _make_table(head: list[str], rows: list[list[str]]) -> str:
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><tr>{''.join(f'<th>{escape(cell)}</th>' for cell in head)}</tr>{body}</table>"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    paths = sorted(options.folder.glob("*.json"))
    if not paths:
        parser.error(f"{options.folder} holds no .json files; make bench-gpu writes one")
    out = options.out or options.folder / "index.html"
    try:
        out.write_text(make_page({path.name: read(path) for path in paths}))
    except ValueError as error:
        parser.error(str(error))
    print(f"wrote {out}")


if __name__ == "__main__":
    main()
