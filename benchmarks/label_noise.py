"""Train with planted label noise: optimistic sets and sub-centers beside their base losses.

    python -m benchmarks.label_noise FEATURES.npz --seeds 5

A linear head on 256 principal directions of frozen features is trained on classes whose labels are changed, uniformly,
with the given share, and evaluated on unseen classes with right labels. Printed is recall@1 in percent, the mean over
seeds with a 95 % interval (Student's t).
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import kinfold
from kinfold.dro import Average, OptimisticKL, Robust, TopK, Trim
from kinfold.experiments import compute_interval
from kinfold.losses import Loss
from kinfold.pairs import normalize

_DIM, _BATCH, _PER_CLASS = 64, 80, 5
# of the 6,320 ordered pairs of a batch, about as many as 20 % wrong labels touch
LOSSES: dict[str, Callable[[int], Loss]] = {
    "binomial, top-k (2b)": lambda classes: Robust("binomial", TopK("2b"), group="sign"),
    "binomial, average": lambda classes: Robust("binomial", Average(), group="sign"),
    "binomial, trim (1b)": lambda classes: Robust("binomial", Trim("1b"), group="sign"),
    "binomial, optimistic-kl (1)": lambda classes: Robust("binomial", OptimisticKL(1.0), group="sign"),
    "arcface": lambda classes: kinfold.losses.create("arcface", num_classes=classes, dim=_DIM),
    "sub-center-arcface": lambda classes: kinfold.losses.create("sub-center-arcface", num_classes=classes, dim=_DIM),
}


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--noise", type=float, nargs="+", default=[0.0, 0.1, 0.2, 0.4])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=300)
    options = parser.parse_args()
    train, labels, test, test_labels = _read(options.file)
    print("| loss | " + " | ".join(f"noise {100 * noise:g} %" for noise in options.noise) + " |")
    print("|---" * (1 + len(options.noise)) + "|")
    for name, build in LOSSES.items():
        cells = []
        for noise in options.noise:
            scores = []
            for seed in range(options.seeds):
                head = _train(train, _plant(labels, noise, seed), build, options.steps, seed)
                scores.append(100 * kinfold.metrics.evaluate(head(test), test_labels, metrics=["recall@1"])["recall@1"])
            interval = compute_interval(scores)
            cells.append(f"{np.mean(scores):.1f} +- {interval.half_width:.1f}")
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def _train(rows: Tensor, labels: Tensor, build: Callable[[int], Loss], steps: int, seed: int) -> torch.nn.Module:
    """Return a linear head that starts from the first principal directions."""
    head = torch.nn.Linear(rows.shape[1], _DIM, bias=False)
    with torch.no_grad():
        head.weight.copy_(torch.eye(_DIM, rows.shape[1]))
    loss = build(int(labels.max()) + 1)
    groups = [{"params": [*head.parameters()], "lr": 1e-3}]
    if loss_parameters := [*loss.parameters()]:
        groups.append({"params": loss_parameters, "lr": 1e-2})
    optimizer = torch.optim.Adam(groups)
    sampler = kinfold.samplers.create("spc", labels, batch_size=_BATCH, per_class=_PER_CLASS, seed=seed)
    step = 0
    while step < steps:
        for batch in sampler:
            optimizer.zero_grad()
            loss(head(rows[batch]), labels[batch]).backward()
            optimizer.step()
            step += 1
            if step == steps:
                break
    return head.requires_grad_(False)


def _plant(labels: Tensor, noise: float, seed: int) -> Tensor:
    source, count = np.random.default_rng(seed), int(labels.max()) + 1
    chosen = torch.from_numpy(source.permutation(len(labels))[: round(noise * len(labels))])
    noisy = labels.clone()
    noisy[chosen] = (labels[chosen] + torch.from_numpy(source.integers(1, count, len(chosen)))) % count
    return noisy


def _read(file: Path) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return training rows and labels and test rows and labels; principal directions are those of the training rows."""
    with np.load(file) as arrays:
        rows, is_train = normalize(torch.from_numpy(arrays["feat"].astype(np.float32))), arrays["split"] == "train"
        labels = torch.from_numpy(np.unique(arrays["cls"], return_inverse=True)[1])
    mask = torch.from_numpy(is_train)
    mean = rows[mask].mean(dim=0)
    _, values, vectors = torch.linalg.svd(rows[mask] - mean, full_matrices=False)
    reduced = (rows - mean) @ (vectors[:256].T / values[:256].sqrt())
    return reduced[mask], kinfold.pairs.reindex(labels[mask])[0], reduced[~mask], labels[~mask]


if __name__ == "__main__":
    main()
