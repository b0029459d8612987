"""Sorting and selection within rows equal those of torch."""

import pytest
import torch

from kinfold.metrics._ranking.row_sorting import select_kth_largest, sort_descending


@pytest.mark.parametrize("shape", [(1, 1), (3, 70), (200, 1000), (7, 0)])
@pytest.mark.parametrize("threads", [1, 2])
def test_rows_are_sorted_as_by_torch(shape, threads, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    rows = torch.randn(shape, generator=torch.Generator().manual_seed(0)).round(decimals=1)
    if rows.shape[1] > 5:
        rows[:, :5] = torch.tensor([-torch.inf, 0.0, -0.0, 1e-45, 3e38])
        rows[0, 5:7] = torch.inf
    before = rows.clone()
    values, order = sort_descending(rows)
    assert torch.equal(values, rows.sort(dim=1, descending=True).values)
    assert torch.equal(rows.gather(1, order), values)
    assert torch.equal(order.sort(dim=1).values, torch.arange(shape[1]).expand(shape))
    assert torch.equal(rows, before)


def test_other_types_are_sorted_by_torch():
    rows = torch.randn(4, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert torch.equal(sort_descending(rows)[0], rows.sort(dim=1, descending=True).values)


@pytest.mark.parametrize("k", [1, 2, 50, 99, 100])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("threads", [1, 2])
def test_the_kth_largest_is_that_of_a_sort(threads, dtype, k, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    rows = torch.randn(2000, 100, generator=torch.Generator().manual_seed(0)).to(dtype)
    rows[:, 3], rows[5] = -torch.inf, 0.5
    before = rows.clone()
    assert torch.equal(select_kth_largest(rows, k), rows.sort(dim=1, descending=True).values[:, k - 1])
    assert torch.equal(
        select_kth_largest(rows[:, ::2], (k + 1) // 2), rows[:, ::2].sort(dim=1).values[:, 50 - (k + 1) // 2]
    )
    assert torch.equal(rows, before)
