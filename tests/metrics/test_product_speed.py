"""Which products are worth their error: a wrong or a slow one is never chosen."""

import time

import pytest
import torch

from kinfold.metrics._ranking import product_speed
from kinfold.metrics._ranking.ordering import descending

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def fresh_trial():
    product_speed._product_speeds.cache_clear()
    yield
    product_speed._product_speeds.cache_clear()


def test_float32_is_always_there_and_the_others_are_clearly_faster():
    found = product_speed.product_speeds(CPU)
    assert list(found.values()) == sorted(found.values())
    assert all(seconds < 0.7 * found[torch.float32] for dtype, seconds in found.items() if dtype != torch.float32)


def test_products_that_saturate_are_not_taken(monkeypatch):
    """Some processors take one side as 0 to 255, less 128 afterwards, and add two products of it in sixteen bits."""

    def saturated(left, right):
        shifted, right = left.to(torch.int32) + 128, right.to(torch.int32)
        pairs = (shifted[:, :, None] * right).view(left.shape[0], -1, 2, right.shape[1]).sum(dim=2)
        return pairs.clamp(-(2**15), 2**15 - 1).sum(dim=1).to(torch.int32) - 128 * right.sum(dim=0)

    monkeypatch.setattr(torch, "_int_mm", saturated)
    assert not product_speed.whole_number_products()
    assert torch.int8 not in product_speed.product_speeds(CPU)


@pytest.mark.parametrize("wrong", [RuntimeError, NotImplementedError, AttributeError])
def test_products_that_do_not_exist_are_not_taken(wrong, monkeypatch):
    def missing(left, right):
        raise wrong

    monkeypatch.setattr(torch, "_int_mm", missing)
    assert torch.int8 not in product_speed.product_speeds(CPU)


def test_slow_products_are_not_taken(monkeypatch):
    original = torch._int_mm
    monkeypatch.setattr(torch, "_int_mm", lambda left, right: time.sleep(0.05) or original(left, right))
    assert torch.int8 not in product_speed.product_speeds(CPU)


@pytest.mark.parametrize("shape", [(1, 1), (3, 70), (200, 1000), (7, 0)])
@pytest.mark.parametrize("threads", [1, 2])
def test_sorting_is_that_of_torch(shape, threads, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    rows = torch.randn(shape, generator=torch.Generator().manual_seed(0)).round(decimals=1)
    if rows.shape[1] > 5:
        rows[:, :5] = torch.tensor([-torch.inf, 0.0, -0.0, 1e-45, 3e38])
        rows[0, 5:7] = torch.inf
    before = rows.clone()
    found, order = descending(rows)
    assert torch.equal(found, rows.sort(dim=1, descending=True).values)
    assert torch.equal(rows.gather(1, order), found)
    assert torch.equal(order.sort(dim=1).values, torch.arange(shape[1]).expand(shape))
    assert torch.equal(rows, before)


def test_other_types_are_sorted_by_torch():
    rows = torch.randn(4, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert torch.equal(descending(rows)[0], rows.sort(dim=1, descending=True).values)
