"""Losses that need no value on the host do not wait, and waits are counted at the function that causes them."""

import re

import pytest
from benchmarks.synchronizations import PAGE, count_loss, count_step, format_tables

from tests.on_second_device import DEVICE

# integer labels on the device, no check and no size that depends on values
WITHOUT_WAITS = [
    "similarity-margin",
    "binomial",
    "sigmoid",
    "threshold-consistent-margin",
    "lifted",
    "multi-similarity",
    "intra-pair-variance",
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


def test_the_page_is_current_and_gives_a_reason_for_every_wait():
    page = PAGE.read_text()
    tables = re.search(r"<!-- waits -->\n(.*?)<!-- /waits -->", page, flags=re.DOTALL)[1]
    counted = [row for row in format_tables(DEVICE).splitlines() if row.startswith("| ")]
    stated = {row.split("|")[1]: row for row in tables.splitlines() if row.startswith("| ")}
    outdated = [row for row in counted if stated.get(row.split("|")[1], row) != row]
    assert not outdated, "run python -m benchmarks.synchronizations"
    assert len(counted) > 50
    reasons = re.findall(r"`([\w.]+)`", page[page.index("Reasons:") :])
    locations = set(re.findall(r"`([\w.]+)` \d", tables))
    assert not {
        location for location in locations if not any(location.startswith(f"{r}.") or location == r for r in reasons)
    }
