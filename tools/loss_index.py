"""Write the tables of docs/losses/index.md from the registry, the loss classes and the first line of each loss page.

python -m tools.loss_index            # writes the file
python -m tools.loss_index --check    # exit code 1 if the file is not up to date
"""

import inspect
import re
import sys
from pathlib import Path

import kinfold
from kinfold.losses import Loss

PAGES = Path(__file__).parent.parent / "docs" / "losses"
FAMILIES = ("pair", "anchor", "batch", "proxy")
DISTANCES = {"euclidean": "distance", "squared-euclidean": "squared distance"}


def make_loss(name: str) -> Loss:
    """Create a loss with its default options, and with proxies if it has any."""
    parameters = inspect.signature(kinfold.registry.resolve("losses", name)).parameters
    return kinfold.losses.create(name, **({"num_classes": 2, "dim": 2} if "dim" in parameters else {}))


def describe_measure(loss: Loss) -> str:
    """What the scores of a loss are, as the table shows it."""
    if loss.measure in DISTANCES:
        return f"{DISTANCES[loss.measure]} of {'unit' if loss.normalize else 'raw'} vectors"
    return "variance ratio of unit vectors" if loss.measure == "snr" else loss.measure


def describe_tuples(loss: Loss) -> str:
    """Which selections of a miner a loss accepts."""
    if loss.proxies is not None:
        return "none"
    has_pairs = type(loss).terms is not Loss.terms
    has_triplets = loss.kind == "pair" or type(loss).tuple_terms is not Loss.tuple_terms
    return ", ".join(["pairs"] * has_pairs + ["triplets"] * has_triplets)


def make_tables() -> dict[str, str]:
    """The table of each family, in the order of the registry."""
    rows: dict[str, list[str]] = {family: [] for family in FAMILIES}
    for name in kinfold.list("losses"):
        page = PAGES / f"{name}.md"
        if not page.is_file():  # robust losses share a page
            continue
        loss = make_loss(name)
        claim = page.read_text().split("\n", maxsplit=2)[1].rstrip(".")
        family = "proxy" if loss.proxies is not None else loss.kind
        rows[family].append(f"| [{name}]({name}.md) | {claim} | {describe_measure(loss)} | {describe_tuples(loss)} |")
    head = "| loss | what it does | scores | mined tuples |\n|---|---|---|---|\n"
    return {family: head + "\n".join(lines) for family, lines in rows.items()}


def fill(text: str) -> str:
    """Replace the tables between their marks."""
    for family, table in make_tables().items():
        filled = f"<!-- {family} losses -->\n{table}\n<!-- /{family} losses -->"
        pattern = rf"<!-- {family} losses -->.*?<!-- /{family} losses -->"
        text = re.sub(pattern, filled.replace("\\", r"\\"), text, flags=re.DOTALL)
    return text


def main() -> None:
    index = PAGES / "index.md"
    text = index.read_text()
    filled = fill(text)
    if "--check" in sys.argv[1:]:
        sys.exit(text != filled)
    index.write_text(filled)


if __name__ == "__main__":
    main()
