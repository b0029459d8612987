"""Time and memory of an evaluation beside those of the peers."""

import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from benchmarks.comparison.libraries import OML, child, turns


def evaluation(python: Path | None, small: bool) -> dict[str, list[dict[str, Any]]]:
    """Time and memory of an evaluation at the sizes of CUB-200-2011 and Stanford Online Products."""
    import kinfold
    from benchmarks import evaluate as bench

    tables: dict[str, list[dict[str, Any]]] = {}
    for size, least in [("cub", 3), ("sop", 1)][: 1 if small else 2]:
        works = {n: w for n, w in bench.subjects(size).items() if n.startswith(("float32", "kinfold: recall", "pyt"))}
        best = turns(works, 0.0, least)
        floor = best["float32 product alone (the floor)"]
        rows = [{"name": n, "seconds": s, "ratio": s / floor, **bench.peak(size, n)} for n, s in best.items()]
        if python is not None:
            x, labels = bench.data(*bench.SIZES[size])
            with tempfile.TemporaryDirectory() as folder:
                torch.save({"x": x, "labels": torch.from_numpy(labels)}, Path(folder) / "rows.pt")
                row = child(python, "retrieval", folder)
            score = kinfold.metrics.evaluate(x, labels, metrics=["recall@1"])["recall@1"]
            rows.append({**row, "name": f"{OML}: CMC@1,10,100, P@1", "difference": abs(row["cmc@1"] - score)})
        tables["{:,} x {}, {:,} classes".format(*bench.SIZES[size][:3])] = rows
        print(evaluation_table(tables), "\n", flush=True)
    return tables


def retrieval(folder: str) -> dict[str, Any]:
    """The same with open-metric-learning's functions, in its own process, with the floor beside it."""
    batched_knn = import_module("oml.functional.knn").batched_knn
    calc_retrieval_metrics = import_module("oml.functional.metrics").calc_retrieval_metrics

    saved = torch.load(Path(folder) / "rows.pt", weights_only=True)
    x, labels = saved["x"], saved["labels"]
    buffer, every, scores = torch.empty(1024, len(x)), torch.arange(len(x)), {}

    def product() -> None:
        for block in x.split(1024):
            torch.mm(block, x.T, out=buffer[: len(block)])

    def work() -> None:
        _, retrieved, relevant = batched_knn(x, every, every, top_n=100, labels_gt=labels)
        ks = {"cmc_top_k": (1, 10, 100), "precision_top_k": (1,), "map_top_k": ()}
        scores.update(calc_retrieval_metrics(retrieved, relevant, verbose=False, **ks))

    Path("/proc/self/clear_refs").write_text("5")
    before = _held("VmRSS")
    best = turns({"work": work}, 0.0, least=1)
    above = _held("VmHWM") - before
    ratio = best["work"] / turns({"floor": product}, 0.0, least=2)["floor"]
    return {"seconds": best["work"], "ratio": ratio, "above": above, "cmc@1": float(scores["cmc"][1])}


def _held(field: str) -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024


def evaluation_table(data: dict[str, list[dict[str, Any]]]) -> str:
    tables = []
    for title, rows in data.items():
        head = [f"| {title} | seconds | x floor | memory above the inputs |", "|---|---|---|---|"]
        lines = [f"| {r['name']} | {r['seconds']:.2f} | {r['ratio']:.2f} | {r['above'] / 2**30:.2f} GB |" for r in rows]
        tables.append("\n".join(head + lines))
    return "\n\n".join(tables)
