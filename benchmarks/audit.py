"""How many planted label errors and duplicates an audit finds, and how much it reports on labels as they are.

    python -m benchmarks.audit FEATURES.npz --seeds 10 11 12

Label noise: 10 % of the labels are changed, to any other class (uniform) or to one of the five classes whose means are
nearest (confusable). The audit is not told the rate. Duplicates: 100 items are copied exactly and 100 with noise of 2 %
of their length, half of each to another split or class.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from kinfold.audit import audit
from kinfold.data import Rows, create_dataset

_COPIES = 100


def main() -> None:
    """Print two tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--seeds", type=int, nargs="+", default=[10, 11, 12])
    parser.add_argument("--noise", type=float, default=0.1)
    options = parser.parse_args()
    print("| data | noise | seed | reported | precision | recall |\n|---|---|---|---|---|---|")
    for file in options.files:
        rows, labels, _ = _read(file)
        print(f"| {file.stem} | none | | {_report(rows, labels, None)} |", flush=True)
        for kind in ("uniform", "confusable"):
            for seed in options.seeds:
                noisy, changed = _plant(rows, labels, kind, options.noise, seed)
                print(f"| {file.stem} | {kind} | {seed} | {_report(rows, noisy, changed)} |", flush=True)
    print("\n| data | planted | found |\n|---|---|---|")
    for file in options.files:
        for name, (planted, reported) in _plant_copies(*_read(file)).items():
            print(f"| {file.stem} | {planted} {name} | {reported} |", flush=True)


def _read(file: Path) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.str_]]:
    with np.load(file) as arrays:
        return arrays["feat"].astype(np.float32), np.unique(arrays["cls"], return_inverse=True)[1], arrays["split"]


def _report(rows: NDArray[np.float32], labels: NDArray[np.int64], changed: NDArray[np.bool_] | None) -> str:
    result = audit(create_dataset("data", Rows(rows), labels, ["train"] * len(labels)))
    flagged = np.zeros(len(labels), dtype=bool)
    flagged[[finding.row for finding in result.findings if finding.kind == "label-error"]] = True
    share = f"{100 * flagged.mean():.1f} %"
    if changed is None:
        return f"{share} | | "
    return f"{share} | {changed[flagged].mean():.3f} | {flagged[changed].mean():.3f}"


def _plant(
    rows: NDArray[np.float32], labels: NDArray[np.int64], kind: str, noise: float, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return labels of which a share was changed, and which."""
    source, count = np.random.default_rng(seed), int(labels.max()) + 1
    chosen = source.permutation(len(labels))[: round(noise * len(labels))]
    noisy, changed = labels.copy(), np.zeros(len(labels), dtype=bool)
    changed[chosen] = True
    if kind == "uniform":
        noisy[chosen] = (labels[chosen] + source.integers(1, count, len(chosen))) % count
    else:
        unit = torch.nn.functional.normalize(torch.from_numpy(rows))
        means = torch.zeros(count, rows.shape[1]).index_add_(0, torch.from_numpy(labels), unit)
        means = torch.nn.functional.normalize(means - means.mean(dim=0))
        near = (means @ means.T).fill_diagonal_(-9.0).topk(5, dim=1).indices.numpy()
        noisy[chosen] = near[labels[chosen], source.integers(0, 5, len(chosen))]
    return noisy, changed


def _plant_copies(
    rows: NDArray[np.float32], labels: NDArray[np.int64], split: NDArray[np.str_]
) -> dict[str, tuple[int, int]]:
    """Return how many copies of each kind were planted and found."""
    source = np.random.default_rng(0)
    chosen = source.permutation(len(rows))[: 4 * _COPIES].reshape(4, _COPIES)
    kinds = ["exact duplicates", "near duplicates", "leaked exact copies", "copies with another label"]
    noise = source.normal(size=(_COPIES, rows.shape[1]))
    lengths = [np.linalg.norm(part, axis=1, keepdims=True) for part in (rows[chosen[1]], noise)]
    noise *= 0.02 * lengths[0] / lengths[1]
    copies = [rows[chosen[0]], rows[chosen[1]] + noise, rows[chosen[2]], rows[chosen[3]]]
    flipped = np.where(split[chosen[2]] == "train", "test", "train")
    new_split = np.concatenate([split, split[chosen[0]], split[chosen[1]], flipped, split[chosen[3]]])
    other = (labels[chosen[3]] + 1) % (labels.max() + 1)
    new_labels = np.concatenate([labels, *(labels[part] for part in chosen[:3]), other])
    data = create_dataset("data", Rows(np.concatenate([rows, *copies]).astype(np.float32)), new_labels, new_split)
    reported = {(finding.row, finding.kind) for finding in audit(data).findings}
    expected = ["duplicate", "duplicate", "leakage", "duplicate-across-classes"]
    reported_copies = {}
    for number, (name, kind) in enumerate(zip(kinds, expected, strict=True)):
        planted = len(rows) + number * _COPIES + np.arange(_COPIES)
        pairs = zip(planted.tolist(), chosen[number].tolist(), strict=True)
        reported_copies[name] = (
            _COPIES,
            sum((copy, kind) in reported or (first, kind) in reported for copy, first in pairs),
        )
    return reported_copies


if __name__ == "__main__":
    main()
