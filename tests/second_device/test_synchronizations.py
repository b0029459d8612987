"""Losses that need no value on the host do not wait, and waits are counted at the function that causes them."""

import pytest
from benchmarks.synchronizations import count_loss, count_step, format_tables

from tests.on_second_device import DEVICE

# integer labels on the device, no check and no size that depends on values
WITHOUT_WAITS = [
    "similarity-margin",
    "binomial",
    "lifted",
    "multi-similarity",
    "precision-at-k",
    "supcon",
    "circle",
    "dro-max",
    "dro-topk",
    "dro-topk-pn",
    "dro-kl",
    "dro-kl-grouped",
    "dro-chi2",
]


@pytest.mark.parametrize("name", WITHOUT_WAITS)
def test_the_host_does_not_wait_for_these_losses(name):
    forward, backward = count_loss(name, DEVICE)
    assert forward + backward == {}


def test_waits_have_a_place():
    forward, backward = count_loss("proxy-anchor", DEVICE)
    assert [location.rpartition(".")[0] for location in forward] == ["losses.proxies"]
    assert not backward


def test_a_training_step_reads_its_loss_once():
    waits = count_step("float32", None, DEVICE)
    assert waits["training.loop.step.__call__"] == 1


def test_the_tables_have_every_loss():
    assert format_tables(DEVICE).count("\n| ") > 36
