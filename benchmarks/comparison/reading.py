"""Measure how much code of a library one has to read to understand a loss."""

from importlib import import_module
from pathlib import Path
from typing import Any

from torch import nn

from benchmarks.comparison.libraries import PACKAGES, batch, subject
from benchmarks.comparison.tracing import entered, lines_to_read, only_code

READ = ("contrastive", "triplet", "multi-similarity")


def reading(library: str) -> list[dict[str, Any]]:
    """For each loss: files, functions and lines entered by one call, the calls, and the classes it inherits from."""
    package = Path(str(import_module(PACKAGES[library]).__file__)).parent
    rows, read = [], {}
    for name in READ:
        loss = subject(library, name)
        if loss is None:
            continue
        step, module = loss
        x, y = batch((32, 16, 4))
        step(x, y)  # work that is done only once is not traced
        trace = entered(lambda step=step, x=x, y=y: step(x, y), package)  # type: ignore[misc]
        read[name] = lines_to_read(trace.calls)
        row: dict[str, Any] = {"loss": name, "library": library, "files": len({c.co_filename for c in trace.calls})}
        row |= {"functions": len(trace.functions), "calls": trace.functions.total(), "run": len(only_code(trace.run))}
        row["ancestors"] = len(set(type(module).__mro__[1:]) - set(nn.Module.__mro__))
        rows.append(row)
    for row in rows:
        shared = set().union(*(lines for name, lines in read.items() if name != row["loss"]))
        row |= {"lines": len(read[row["loss"]]), "own": len(read[row["loss"]] - shared) if shared else ""}
    return rows


def reading_table(rows: list[dict[str, Any]]) -> str:
    keys = ("loss", "library", "files", "functions", "lines", "own", "run", "calls", "ancestors")
    titles = ("loss", "library", "files", "functions", "their lines", "own lines", "lines run", "calls", "ancestors")
    head = f"| {' | '.join(titles)} |\n{'|---' * len(titles)}|"
    ordered = sorted(rows, key=lambda row: READ.index(row["loss"]))
    return "\n".join([head, *("| " + " | ".join(str(row[key]) for key in keys) + " |" for row in ordered)])
