"""The layout of a map, and which items it shows."""

import numpy as np
import torch

from kinfold.report.content.map_layout import compute_layout, sample_items


def test_equal_rows_and_rows_of_one_number_have_a_layout():
    assert np.isfinite(compute_layout(torch.ones(30, 4))).all()
    line = compute_layout(torch.linspace(0, 1, 30)[:, None])
    assert line.shape == (30, 2)
    assert np.isfinite(line).all()


def test_the_layout_keeps_neighbors_and_lies_between_zero_and_one():
    labels = torch.arange(120) % 3
    rows = 6 * torch.eye(5)[labels] + 0.3 * torch.randn(120, 5, generator=torch.Generator().manual_seed(0))
    first, second = compute_layout(rows), compute_layout(rows)
    assert (first == second).all()
    assert first.min() >= 0
    assert first.max() <= 1
    apart = np.linalg.norm(first[:, None] - first[None], axis=2)
    np.fill_diagonal(apart, np.inf)
    assert (labels.numpy()[apart.argmin(axis=1)] == labels.numpy()).all()


def test_samples_are_proportional_to_classes():
    labels = torch.cat([torch.full((size,), number) for number, size in enumerate([400, 200, 100, 3])])
    chosen = sample_items(labels, 71)
    assert len(set(chosen.tolist())) == 71
    counts = torch.bincount(labels[chosen], minlength=4).tolist()
    for count, size in zip(counts, [400, 200, 100, 3], strict=True):
        assert abs(count - size * 71 / 703) <= 1
    assert sample_items(labels, 1000).tolist() == [*range(703)]
