"""How well thresholds for classes never seen keep their rate, in a simulation with known truth and on real classes.

    python -m benchmarks.calibration simulation --repeats 200
    python -m benchmarks.calibration features FEATURES.npz --far 0.05 --splits 200
    python -m benchmarks.calibration omniglot omniglot_28_gray.npz --far 0.01 --splits 200

Three thresholds are compared. "naive" has the rate `far` among all pairs of the calibration classes. "estimate" is the
90 % quantile of that threshold over resampled classes. "guarantee" is conformal risk control over disjoint pairs of
classes, where the classes are enough for it. Printed are the mean realized rate on other classes, and the share of
calibrations whose realized rate exceeds `far`.
"""

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from kinfold.calibration import control_rate, smallest_certifiable_rate
from kinfold.calibration.class_pairs import ClassPairTable, build_table
from kinfold.calibration.drawing import ClassItems
from kinfold.calibration.thresholds import estimate_threshold
from kinfold.pairs import normalize

HEADER = """| classes | rate | threshold | mean realized rate | above the rate | mean true-accept rate |
|---|---|---|---|---|---|"""
_DIM = 24
_ITEMS = 10


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["simulation", "features", "omniglot"])
    parser.add_argument("file", type=Path, nargs="?")
    parser.add_argument("--far", type=float, nargs="+", default=[0.05])
    parser.add_argument("--splits", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=200)
    options = parser.parse_args()
    print(HEADER)
    if options.what == "simulation":
        for classes, far in ((50, 0.05), (50, 0.01), (100, 0.05), (100, 0.01), (600, 0.01), (600, 0.001)):
            _report(classes, far, _simulate(classes, far, options.repeats))
        return
    rows, labels = _read(options.what, options.file)
    items = ClassItems.from_labels(normalize(rows), labels)
    for far in options.far:
        _report(items.classes // 2, far, _split(items, far, options.splits))


def _report(classes: int, far: float, draws: Iterator[dict[str, tuple[float, float]]]) -> None:
    """Print one line for each kind of threshold."""
    results = [*draws]
    for name in results[0]:
        realized = torch.tensor([result[name][0] for result in results], dtype=torch.float64)
        accepted = torch.tensor([result[name][1] for result in results], dtype=torch.float64)
        exceeded = float((realized > far).double().mean())
        print(
            f"| {classes} | {far:g} | {name} | {float(realized.mean()):.5f} | {100 * exceeded:.0f} % | "
            f"{float(accepted.mean()):.3f} |",
            flush=True,
        )


def _choose(items: ClassItems, far: float, table: ClassPairTable, generator: torch.Generator) -> dict[str, float]:
    """Return the threshold of each kind."""
    rates = table.rates(torch.ones(items.classes, 1))
    thresholds = {
        "naive": float(table.find_threshold(rates, far)),
        "estimate": estimate_threshold(table, far, 0.9, 200, generator),
    }
    if far >= smallest_certifiable_rate(items.classes // 2):
        thresholds["guarantee"] = control_rate(*items.match_classes(generator), far)
    return thresholds


def _simulate(classes: int, far: float, repeats: int) -> Iterator[dict[str, tuple[float, float]]]:
    """Draw classes from a population whose rates are known from 6,000 other classes."""
    generator = torch.Generator().manual_seed(1)
    truth = _draw_classes(6000, 4, generator)
    negative = truth.draw_negative(8_000_000, generator).sort().values
    positive = truth.draw_positive(200_000, generator).sort().values

    def share_above(values: Tensor, threshold: float) -> float:
        return 1.0 - int(torch.searchsorted(values, torch.tensor(threshold, dtype=values.dtype))) / len(values)

    for repeat in range(repeats):
        draws = torch.Generator().manual_seed(1000 + repeat)
        items = _draw_classes(classes, _ITEMS, draws)
        table = build_table(items.rows, items.labels, far, draws)
        chosen = _choose(items, far, table, draws)
        yield {name: (share_above(negative, at), share_above(positive, at)) for name, at in chosen.items()}


def _draw_classes(classes: int, items: int, generator: torch.Generator) -> ClassItems:
    """Return items of classes from families: every tenth class is a near copy of another class of its family."""
    families = torch.randn(40, _DIM, generator=torch.Generator().manual_seed(0))  # the same in every draw
    family = torch.randint(40, (classes,), generator=generator)
    spread = torch.where(torch.rand(classes, generator=generator) < 0.1, 0.3, 1.0)
    centers = families[family] + spread[:, None] * torch.randn(classes, _DIM, generator=generator)
    width = 0.2 + 0.4 * torch.rand(classes, generator=generator)
    noise = torch.randn(classes, items, _DIM, generator=generator) * width[:, None, None]
    rows = normalize((centers[:, None] + noise).flatten(0, 1))
    return ClassItems.from_labels(rows, torch.arange(classes).repeat_interleave(items))


def _split(items: ClassItems, far: float, splits: int) -> Iterator[dict[str, tuple[float, float]]]:
    """Calibrate on a random half of the classes, and measure on the other half."""
    table = build_table(items.rows, items.labels, far, torch.Generator().manual_seed(0))
    for split in range(splits):
        draws = torch.Generator().manual_seed(1 + split)
        order = torch.randperm(items.classes, generator=draws)
        half, rest = order[: items.classes // 2].sort().values, order[items.classes // 2 :].sort().values
        chosen = _choose(items.take(half), far, table.take(half), draws)
        other = table.take(rest)
        rates = other.rates(torch.ones(len(rest), 1))
        positive = items.take(rest).draw_positive(4000, draws)
        yield {
            name: (float(other.rate_at(at, rates)), float((positive >= at).double().mean()))
            for name, at in chosen.items()
        }


def _read(what: str, file: Path) -> tuple[Tensor, Tensor]:
    """Return embeddings and labels of the unseen classes."""
    readers: dict[str, Callable[[Path], tuple[Tensor, Tensor]]] = {"features": _read_features, "omniglot": _read_pixels}
    return readers[what](file)


def _read_features(file: Path) -> tuple[Tensor, Tensor]:
    with np.load(file) as arrays:
        test = arrays["split"] == "test"
        return torch.from_numpy(arrays["feat"][test].astype(np.float32)), torch.from_numpy(arrays["cls"][test])


def _read_pixels(file: Path) -> tuple[Tensor, Tensor]:
    """Return the whitened pixels of the test characters, 128 numbers each, fitted on the training characters."""
    with np.load(file) as arrays:
        pixels = torch.from_numpy(arrays["x"].reshape(len(arrays["x"]), -1).astype(np.float32) / 255)
        test, labels = torch.from_numpy(arrays["test"]), torch.from_numpy(arrays["cls"])
    train = pixels[~test]
    mean = train.mean(dim=0)
    _, values, vectors = torch.linalg.svd(train[::4] - mean, full_matrices=False)
    return (pixels[test] - mean) @ (vectors[:128].T / values[:128].sqrt()), labels[test]


if __name__ == "__main__":
    main()
