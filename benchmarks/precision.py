"""How exact float32 gradients are where positives nearly coincide.

    python -m benchmarks.precision                     # every loss, about 15 seconds
    python -m benchmarks.precision --only contrastive

64 rows x 128 make 32 classes of two rows at distance r. The gradient of each row in float32 is compared with the one
of the same rows in float64: the mean of their cosines, 1 where they agree. Losses with proxies get one unit vector per
class as its proxy, and two samples at distance r from it. Every loss has a setting in which these positives are active.
Each is measured twice: with all distances in the product form, 2 - 2 s or |x|^2 + |y|^2 - 2 x.y, and as the losses are,
with those of near pairs from differences.
"""

import argparse
import copy
import inspect
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, normalize

import kinfold
from benchmarks.timing import about
from kinfold.losses import Loss

CLASSES, DIM = 32, 128
RADII = (1e-1, 1e-2, 1e-3, 4e-4, 1e-4)
REQUIRED = 0.99
Results = dict[str, dict[str, float]]

# A loss that looks at one pair alone cannot choose among 32 at one distance: rounding decides. So it does for one that
# chooses one of two nearly equal items as the center of both.
TIED = ("dro-max", "facility-location")
# Settings in which two nearly equal positives still attract each other. The losses of the last block have no gradient
# where negatives are much farther than positives: their classes are drawn close together.
SETTINGS: dict[str, tuple[str, dict[str, Any], bool]] = {
    "contrastive": ("contrastive", {"positive_margin": 0.0}, False),
    "contrastive (squared)": ("contrastive", {"positive_margin": 0.0, "squared": True}, False),
    "triplet (margin=4)": ("triplet", {"margin": 4.0}, False),
    "hierarchical-triplet (start_margin=4)": ("hierarchical-triplet", {"start_margin": 4.0}, False),
    "triplet (squared=False, margin=2)": ("triplet", {"squared": False, "margin": 2.0}, False),
    "margin (beta=0.1)": ("margin", {"beta": 0.1}, False),
    "ranked-list (margin=1.2)": ("ranked-list", {"margin": 1.2}, False),
    "hap2s (margin=2)": ("hap2s", {"margin": 2.0}, False),
    "hap2s (polynomial, margin=2)": ("hap2s", {"margin": 2.0, "weighting": "polynomial"}, False),
    "lifted (oh-song)": ("lifted", {"variant": "oh-song"}, False),
    "generalized-lifted": ("generalized-lifted", {}, False),
    "quadruplet (margin=2)": ("quadruplet", {"margin": 2.0}, False),
    "snr (margin=4)": ("snr", {"margin": 4.0}, False),
    "dro-topk (contrastive)": ("dro-topk", {"pair_loss": "contrastive"}, False),
    "dro-kl-grouped (contrastive)": ("dro-kl-grouped", {"pair_loss": "contrastive"}, False),
    "lifted": ("lifted", {}, False),
    "similarity-margin (margin=1)": ("similarity-margin", {"margin": 1.0}, False),
    **{
        f"{name} (similarity-contrastive)": (name, {"pair_loss": "similarity-contrastive"}, False)
        for name in ("dro-topk", "dro-topk-pn", "dro-kl", "dro-kl-grouped", "dro-kl-ball", "dro-chi2")
    },
    "normalized-softmax (temperature=0.5)": ("normalized-softmax", {"temperature": 0.5}, False),
    "cosface (scale=8)": ("cosface", {"scale": 8.0}, False),
    "magface (scale=8)": ("magface", {"scale": 8.0}, False),
    "adaface (scale=8)": ("adaface", {"scale": 8.0}, False),
    "threshold-consistent-margin (positive_threshold=1)": (
        "threshold-consistent-margin",
        {"positive_threshold": 1.0, "negative_threshold": -1.0},
        False,
    ),
    "tuplet-margin (scale=2)": ("tuplet-margin", {"scale": 2.0}, False),
    "fastap": ("fastap", {}, True),
    "pnp (temperature=0.1)": ("pnp", {"temperature": 0.1}, True),
    "recall-at-k (k_temperature=10)": ("recall-at-k", {"temperature": 0.1, "k_temperature": 10.0}, True),
    "roadmap (positive_threshold=2)": ("roadmap", {"positive_threshold": 2.0}, False),
    "happier (temperature=0.1)": ("happier", {"temperature": 0.1}, True),
    "histogram (bins=9)": ("histogram", {"bins": 9}, True),
    "multi-similarity": ("multi-similarity", {}, True),
    "precision-at-k": ("precision-at-k", {}, True),
    "circle": ("circle", {}, True),
    "smooth-ap": ("smooth-ap", {}, True),
}


def settings(only: list[str]) -> dict[str, tuple[str, dict[str, Any], bool]]:
    """Return what is measured: title, name, options and whether classes lie close; every other loss by default."""
    covered = {name for name, _, _ in SETTINGS.values()}
    rest: dict[str, tuple[str, dict[str, Any], bool]]
    rest = {name: (name, {}, False) for name in kinfold.list("losses") if name not in covered and name not in TIED}
    return {title: row for title, row in (SETTINGS | rest).items() if not only or row[0] in only}


def make(name: str, options: dict[str, Any]) -> Loss:
    """Build the loss, with as many proxies as there are classes where it owns proxies."""
    parameters = inspect.signature(kinfold.registry.resolve("losses", name)).parameters
    owner = {"num_classes": CLASSES, "dim": DIM} if "dim" in parameters else {}
    loss: Loss = kinfold.losses.create(name, **owner, **options)
    return loss


def problem(loss: Loss, radius: float, close: bool = False, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return float32 rows of length one and their labels; a loss with proxies gets its own set beside the rows."""
    generator = torch.Generator().manual_seed(seed)
    centers = normalize(torch.randn(CLASSES, DIM, generator=generator, dtype=torch.float64))
    if close:  # classes at distances of about 0.14
        centers = normalize(centers[:1] + 0.1 * centers)
    proxies = loss.proxies
    rows = []
    for side in range(2):
        direction = torch.randn(CLASSES, DIM, generator=generator, dtype=torch.float64)
        direction -= (direction * centers).sum(dim=1, keepdim=True) * centers
        # without proxies the first row of a class is the center itself
        step = 0.0 if proxies is None and side == 0 else radius
        rows.append(normalize(centers + step * normalize(direction)))
    if proxies is not None:
        shape = proxies.shape
        vectors = centers if proxies.dim() == 2 else centers[:, None, :].expand(shape)
        with torch.no_grad():
            proxies.copy_(vectors)
    return torch.cat(rows).float(), torch.arange(CLASSES).repeat(2)


def gradient(loss: Loss, x: Tensor, y: Tensor) -> Tensor:
    """Return the gradient of the loss by the rows."""
    leaf = x.clone().requires_grad_()
    return torch.autograd.grad(loss(leaf, y), leaf)[0]


def mean_cosine(name: str, options: dict[str, Any], close: bool, radius: float, seed: int = 0) -> float:
    """Return the mean cosine between the float32 and the float64 gradients of all rows that have one."""
    single = make(name, options)
    x, y = problem(single, radius, close, seed)
    double = copy.deepcopy(single).double()
    exact = gradient(double, x.double(), y)
    rounded = gradient(single, x, y).double()
    pulled = exact.norm(dim=1) > 0
    return float(cosine_similarity(rounded, exact, dim=1)[pulled].mean())


@contextmanager
def product_form() -> Iterator[None]:
    """Leave distances and sines as the product gives them, which is what a compiled graph does with distances."""

    def keep(squared: Tensor, *_: Any) -> Tensor:
        return squared

    def far(x: Tensor, y: Tensor, index: Tensor) -> Tensor:
        return x.new_full(index.shape, 2.0)

    with (
        patch("kinfold.pairs.measures.recompute_near", keep),
        patch("kinfold.losses.arcface._squared_distance", far),
    ):
        yield


def measure(only: list[str]) -> Results:
    """Return the mean cosine of every loss at every radius."""
    return {
        title: {f"{radius:g}": mean_cosine(*row, radius) for radius in RADII} for title, row in settings(only).items()
    }


def table(product: Results, differences: Results) -> str:
    """Return both forms side by side where the product form falls short of 0.99, and the worst of the other losses."""
    short = [title for title, row in product.items() if min(row.values()) < REQUIRED]
    head = "| loss | " + " | ".join(f"r = {radius:g}" for radius in RADII) + " |"
    lines = [head, "|---" * (len(RADII) + 1) + "|"]
    for title in short:
        cells = [f"{product[title][f'{r:g}']:.3f} / {differences[title][f'{r:g}']:.3f}" for r in RADII]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    rest = [value for title, row in differences.items() if title not in short for value in row.values()]
    if rest:
        others = "; ".join(title for title in differences if title not in short)
        lines += ["", f"At least {min(rest):.4f} at every r, in both forms: {others}."]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], help="losses to measure (all)")
    parser.add_argument("--json", type=Path, default=Path("results/bench_precision.json"), help="where the numbers go")
    arguments = parser.parse_args()
    with product_form():
        product = measure(arguments.only)
    differences = measure(arguments.only)
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    forms = {"product": product, "differences": differences}
    arguments.json.write_text(json.dumps({"about": about(), "precision": forms}, indent=1))
    print(table(product, differences))


if __name__ == "__main__":
    main()
