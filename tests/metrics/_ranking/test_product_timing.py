"""Which products are worth their error: an incorrect or slow one is never chosen."""

import time

import pytest
import torch

from kinfold.metrics._ranking import product_timing

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def clear_cache():
    product_timing._time_products.cache_clear()
    yield
    product_timing._time_products.cache_clear()


def test_float32_is_always_present_and_the_others_are_clearly_faster():
    seconds_per_product = product_timing.time_products(CPU)
    assert list(seconds_per_product.values()) == sorted(seconds_per_product.values())
    assert all(
        seconds < 0.7 * seconds_per_product[torch.float32]
        for dtype, seconds in seconds_per_product.items()
        if dtype != torch.float32
    )


def test_products_that_saturate_are_not_used(monkeypatch):
    """Some processors take one side as 0 to 255, less 128 afterwards, and add two products of it in sixteen bits."""

    def multiply_saturated(left, right):
        shifted, right = left.to(torch.int32) + 128, right.to(torch.int32)
        pairs = (shifted[:, :, None] * right).view(left.shape[0], -1, 2, right.shape[1]).sum(dim=2)
        return pairs.clamp(-(2**15), 2**15 - 1).sum(dim=1).to(torch.int32) - 128 * right.sum(dim=0)

    monkeypatch.setattr(torch, "_int_mm", multiply_saturated)
    assert not product_timing.has_exact_int8_products()
    assert torch.int8 not in product_timing.time_products(CPU)


@pytest.mark.parametrize("error", [RuntimeError, NotImplementedError, AttributeError])
def test_products_that_do_not_exist_are_not_used(error, monkeypatch):
    def raise_error(left, right):
        raise error

    monkeypatch.setattr(torch, "_int_mm", raise_error)
    assert torch.int8 not in product_timing.time_products(CPU)


def test_slow_products_are_not_used(monkeypatch):
    original = torch._int_mm
    monkeypatch.setattr(torch, "_int_mm", lambda left, right: time.sleep(0.05) or original(left, right))
    assert torch.int8 not in product_timing.time_products(CPU)
