"""How well thresholds for classes never seen keep their rate, in a simulation with known truth and on real classes.

    python -m benchmarks.calibration simulation --repeats 200
    python -m benchmarks.calibration features FEATURES.npz --far 0.05 --splits 200
    python -m benchmarks.calibration omniglot omniglot_28_gray.npz --far 0.01 --splits 200

Four thresholds are compared. "naive" has the rate `far` among all pairs of the calibration classes. "bootstrap" is the
90 % quantile of that threshold over resampled classes. "estimate" keeps an upper limit of the rate among as many new
classes below `far`, at the level 90 %. "guarantee" is conformal risk control over disjoint pairs of classes, where the
classes are enough for it. Printed are the mean realized rate on other classes, and the share of calibrations whose
realized rate exceeds `far`: in the simulation that of the whole population and that of as many new classes, on real
classes that of the other half.
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
SIMULATION_HEADER = """| classes | rate | threshold | mean true rate | above: population | new classes | mean TAR |
|---|---|---|---|---|---|---|"""
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
    parser.add_argument("--classes", type=int, nargs="+", default=[50, 100, 600], choices=[50, 100, 600])
    options = parser.parse_args()
    print(SIMULATION_HEADER if options.what == "simulation" else HEADER)
    if options.what == "simulation":
        for classes, far in ((50, 0.05), (50, 0.01), (100, 0.05), (100, 0.01), (600, 0.01), (600, 0.001)):
            if classes in options.classes:
                _report(classes, far, _simulate(classes, far, options.repeats))
        return
    rows, labels = _read(options.what, options.file)
    items = ClassItems.from_labels(normalize(rows), labels)
    for far in options.far:
        _report(items.classes // 2, far, _split(items, far, options.splits))


def _report(classes: int, far: float, draws: Iterator[dict[str, tuple[float, ...]]]) -> None:
    """Print one line for each kind of threshold: the mean of the first rate, and how often each rate exceeds `far`."""
    results = [*draws]
    for name in results[0]:
        values = torch.tensor([result[name] for result in results], dtype=torch.float64)
        *rates, accepted = values.T
        exceeded = " | ".join(f"{100 * float((rate > far).double().mean()):.0f} %" for rate in rates)
        mean, accept_rate = float(rates[0].mean()), float(accepted.mean())
        print(f"| {classes} | {far:g} | {name} | {mean:.5f} | {exceeded} | {accept_rate:.3f} |", flush=True)


def _choose(items: ClassItems, far: float, table: ClassPairTable, generator: torch.Generator) -> dict[str, float]:
    """Return the threshold of each kind."""
    rates = table.rates(torch.ones(items.classes, 1))
    thresholds = {
        "naive": float(table.find_threshold(rates, far)),
        "bootstrap": _resample(table, far, generator),
        "estimate": estimate_threshold(table, far, 0.9),
    }
    if far >= smallest_certifiable_rate(items.classes // 2):
        thresholds["guarantee"] = control_rate(*items.match_classes(generator), far)
    return thresholds


def _resample(table: ClassPairTable, far: float, generator: torch.Generator) -> float:
    """Return the 90 % quantile of the naive threshold over 200 draws of the classes with replacement."""
    classes = table.shares.shape[1]
    drawn = torch.randint(classes, (classes, 200), generator=generator)
    counts = torch.zeros(classes, 200).scatter_add_(0, drawn, torch.ones(classes, 200))
    return float(table.find_threshold(table.rates(counts), far).quantile(0.9))


def _simulate(classes: int, far: float, repeats: int) -> Iterator[dict[str, tuple[float, ...]]]:
    """Draw classes from a population whose rates are known from 6 million pairs of 600,000 other classes."""
    generator = torch.Generator().manual_seed(1)
    parts = [_draw_classes(200_000, 1, generator).draw_negative(2_000_000, generator) for _ in range(3)]
    negative = torch.cat(parts).sort().values
    positive = _draw_classes(6000, 4, generator).draw_positive(200_000, generator).sort().values

    def share_above(values: Tensor, threshold: float) -> float:
        return 1.0 - int(torch.searchsorted(values, torch.tensor(threshold, dtype=values.dtype))) / len(values)

    for repeat in range(repeats):
        draws = torch.Generator().manual_seed(1000 + repeat)
        items, new = _draw_classes(classes, _ITEMS, draws), _draw_classes(classes, _ITEMS, draws)
        chosen = _choose(items, far, build_table(items.rows, items.labels, far, draws), draws)
        others = new.draw_negative(400_000, draws)
        yield {
            name: (share_above(negative, at), float((others >= at).double().mean()), share_above(positive, at))
            for name, at in chosen.items()
        }


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


def _split(items: ClassItems, far: float, splits: int) -> Iterator[dict[str, tuple[float, ...]]]:
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
