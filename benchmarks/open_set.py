"""Open-set identification on classes left out of the gallery: thresholds of risk control beside a naive choice.

    python -m benchmarks.open_set FEATURES.npz --far 0.05 --splits 50

The unseen classes are divided into three parts: a gallery with five items of each class, probes, and unknown classes.
"naive" is the threshold at which a share `far` of the probes, as items, is given a label. Printed are the mean share of
unknown items that are given a label, how often it exceeds `far`, and the detection and identification rate (DIR): the
share of other items of the gallery's classes that are given the right label.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch

from kinfold import Gallery

_SHOTS = 5


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--far", type=float, nargs="+", default=[0.05])
    parser.add_argument("--splits", type=int, default=50)
    options = parser.parse_args()
    with np.load(options.file) as arrays:
        test = arrays["split"] == "test"
        rows, labels = torch.from_numpy(arrays["feat"][test].astype(np.float32)), arrays["cls"][test]
    print("| rate | threshold | mean realized rate | above the rate | DIR |\n|---|---|---|---|---|")
    for far in options.far:
        results: dict[str, list[tuple[float, float]]] = {"naive": [], "risk control": []}
        for split in range(options.splits):
            for name, result in _measure(rows, labels, far, split).items():
                results[name].append(result)
        for name, values in results.items():
            realized, detected = np.array(values).T
            above = f"{100 * np.mean(realized > far):.0f} %"
            print(f"| {far:g} | {name} | {realized.mean():.4f} | {above} | {detected.mean():.3f} |", flush=True)


def _measure(
    rows: torch.Tensor, labels: "np.ndarray[tuple[int], np.dtype[np.int64]]", far: float, seed: int
) -> dict[str, tuple[float, float]]:
    """Return the share of labeled unknown items and the DIR of each threshold."""
    source = np.random.default_rng(seed)
    classes = source.permutation(np.unique(labels))
    third = len(classes) // 3
    enrolled, probed, unknown = classes[:third], classes[third : 2 * third], classes[2 * third :]
    first = np.concatenate([source.permutation(np.flatnonzero(labels == c))[:_SHOTS] for c in enrolled])
    rest = np.setdiff1d(np.flatnonzero(np.isin(labels, enrolled)), first)
    with tempfile.TemporaryDirectory() as folder:
        gallery = Gallery.create(Path(folder) / "gallery", dim=rows.shape[1])
        gallery.add(rows[first], labels[first])
        probes = np.flatnonzero(np.isin(labels, probed))
        controlled = gallery.set_probes(rows[probes], labels[probes], far).threshold
        best = gallery.search(rows[probes], k=1).similarities[:, 0].numpy()
        thresholds = {"naive": float(np.quantile(best, 1 - far)), "risk control": controlled}
        strange = gallery.search(rows[np.isin(labels, unknown)], k=1).similarities[:, 0].numpy()
        neighbors = gallery.search(rows[rest], k=1)
    right = np.array([names[0] for names in neighbors.labels]) == labels[rest].astype(str)
    score = neighbors.similarities[:, 0].numpy()
    return {
        name: (float((strange >= at).mean()), float((right & (score >= at)).mean())) for name, at in thresholds.items()
    }


if __name__ == "__main__":
    main()
