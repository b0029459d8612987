"""Bounds of the k-th largest product are bounds, and not much too low."""

import pytest
import torch

from kinfold.metrics._ranking.kth_bound import bound_kth_by_sample


@pytest.mark.parametrize("k", [1, 2, 100, 1000, 1900, 2000])
def test_a_bound_from_a_sample_holds_for_rows_in_any_order(k):
    generator = torch.Generator().manual_seed(0)
    random = torch.randn(60, 2000, generator=generator)
    steps = torch.randint(0, 3, (20, 2000), generator=generator).float()
    blind = random[:20].clone()
    blind[:, ::8] += 5.0  # the sample is not like the rest
    rows = torch.cat([random, random[:20].sort(dim=1).values, steps, blind, torch.full((5, 2000), 0.25)])
    bound = bound_kth_by_sample(rows, k)
    true = rows.sort(dim=1, descending=True).values[:, k - 1]
    assert (bound <= true).all()
    reached = (rows[:60] >= bound[:60, None]).sum(dim=1).double()
    assert reached.mean() <= k + 4 * (8 * k) ** 0.5 + 8, "a bound that excludes nothing is useless"
    rounded_bound = bound_kth_by_sample(rows.bfloat16(), k)
    assert (rounded_bound <= rows.bfloat16().float().sort(dim=1, descending=True).values[:, k - 1]).all()
