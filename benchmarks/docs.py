"""Write measured costs into the documentation: of all losses, on the page of each, of evaluation, of reading.

python -m benchmarks.docs results/bench_losses.json
python -m benchmarks.docs results/bench_evaluate.json
python -m benchmarks.docs results/bench_evaluate_classes.json
python -m benchmarks.docs results/bench_data.json
python -m benchmarks.docs results/bench_training.json
python -m benchmarks.docs results/bench_cub_features.json
python -m benchmarks.docs results/bench_every_loss.json
python -m benchmarks.docs results/bench_drml.json
python -m benchmarks.docs results/bench_catalog.json            # and bench_catalog_metrics.json
python -m benchmarks.docs results/bench_precision.json
python -m benchmarks.docs results/bench_runtime.json
python -m benchmarks.docs results/bench_compiled.json
python -m benchmarks.docs results/bench_large_batches.json
python -m benchmarks.docs results/bench_proxies.json
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

import kinfold
from benchmarks import (
    catalog,
    compiled_losses,
    cub_features,
    dro_runtime,
    evaluate,
    evaluate_classes,
    every_loss,
    large_batches,
    precision,
    proxies,
    training,
)
from benchmarks import data as data_bench
from benchmarks.losses import VARIANTS, table

DOCS = Path(__file__).parent.parent / "docs" / "losses"
CATALOG = {"miners": "miners.md", "sets": "dro.md", "metrics": "evaluation.md", "backbones": "models.md"}


def line(result: dict[str, Any]) -> str:
    classes = "" if result["num_classes"] is None else f", {result['num_classes']:,} classes"
    text = f"| {result['loss']} | {result['batch']} x {result['dim']}{classes} | {result['ratio']:.2f} | "
    peer = result["peer_over_ours"]
    peer_column = "" if peer is None else f"{peer:.1f} times ours" if isinstance(peer, float) else peer
    return text + f"{result['extra_matrices']:.1f} | {peer_column} |"


def cost_of(name: str, results: list[dict[str, Any]]) -> str:
    titles = {name, *(title for title, (base, _, _) in VARIANTS.items() if base == name)}
    rows = [line(r) for r in results if r["loss"] in titles]
    head = "| loss | batch x dimension | time, x floor | extra memory, score matrices | pytorch-metric-learning |"
    return "\n".join([head, "|---|---|---|---|---|", *rows, "", "What these mean: [cost](cost.md)."])


def fill(page: Path, mark: str, text: str) -> None:
    """Replace what stands between the two marks."""
    filled = f"<!-- {mark} -->\n{text}\n<!-- /{mark} -->"
    page.write_text(re.sub(rf"<!-- {mark} -->.*?<!-- /{mark} -->", lambda _: filled, page.read_text(), flags=re.S))


def main(source: Path) -> None:
    data = json.loads(source.read_text())
    if "settings" in data:
        fill(DOCS.parent / "results.md", "drml", data["table"])
        return
    versions = ", ".join(f"{key} {value}" for key, value in data["about"].items())
    if "runtime" in data:
        runtime = dro_runtime.table({name: {int(b): r for b, r in of.items()} for name, of in data["runtime"].items()})
        fill(DOCS.parent / "dro.md", "runtime", f"{runtime}\n\nMeasured with {versions}.")
    if "large" in data:
        fill(DOCS.parent / "evaluation.md", "evaluation", f"{evaluate.tables(data)}\n\nMeasured with {versions}.")
    if "by_classes" in data:
        text = f"{evaluate_classes.table(data['by_classes'])}\n\nMeasured with {versions}."
        fill(DOCS.parent / "evaluation.md", "classes", text)
    if "samplers" in data:
        fill(DOCS.parent / "data.md", "reading", f"{data_bench.images_table(data)}\n\nMeasured with {versions}.")
        fill(
            DOCS.parent / "samplers.md",
            "milliseconds",
            f"{data_bench.samplers_table(data)}\n\nMeasured with {versions}.",
        )
    if "loops" in data:
        fill(DOCS.parent / "training.md", "training", f"{training.tables(data)}\n\nMeasured with {versions}.")
    if "precision" in data:
        forms = data["precision"]
        text = precision.table(forms["product"], forms["differences"])
        fill(DOCS / "index.md", "precision", f"{text}\n\nMeasured with {versions}.")
    if "curves" in data:
        fill(DOCS.parent / "training.md", "cub", f"{cub_features.table(data)}\n\nMeasured with {versions}.")
    for recipe, by_data in data.get("recipes", {}).items():
        text = f"{every_loss.tables(by_data)}\n\nMeasured with {versions}."
        fill(DOCS.parent / "results.md", f"every-loss-{recipe}", text)
    for kind, values in data.get("catalog", {}).items():
        text = f"{catalog.table(kind, values)}\n\nMeasured with {versions}."
        fill(DOCS.parent / CATALOG[kind], kind, text)
    if "rows" in data:
        fill(DOCS / "cost.md", "large", f"{large_batches.table(data['rows'])}\n\nMeasured with {versions}.")
    if "class_vectors" in data:
        fill(DOCS / "cost.md", "classes", f"{proxies.table(data)}\n\nMeasured with {versions}.")
    if "results" not in data:
        return
    results = data["results"]
    if "ratios" in results[0]:
        fill(DOCS / "cost.md", "floors", f"{compiled_losses.table(results)}\n\nMeasured with {versions}.")
        return
    measured = {row["loss"] for row in results}
    for name in kinfold.list("losses"):
        page = DOCS / f"{name}.md"
        if page.exists() and name in measured:  # a run with --only leaves the other pages alone
            fill(page, "cost", cost_of(name, results))
    if measured >= {*kinfold.list("losses")}:
        fill(DOCS / "cost.md", "bench", f"{table(results)}\n\nMeasured with {versions}.")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
