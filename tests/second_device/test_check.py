"""The check "second device" finds a tensor on the wrong device and counts waits."""

import torch

from kinfold.testing import check_loss
from tests.on_second_device import make_on_cpu
from tests.testing.test_check import Faulty


class Stray(Faulty):
    def forward(self, embeddings, labels):
        value = super(Faulty, self).forward(embeddings, labels)
        return value + torch.ones(embeddings.shape[0], dtype=embeddings.dtype, device="cpu") @ embeddings.sum(dim=1) * 0


def test_a_tensor_on_the_wrong_device_is_found():
    finding = check_loss(Stray("stray"), checks=["second device"])["second device"]
    assert finding.status == "fails"
    assert "at least two devices" in finding.message


def test_waits_of_a_loss_are_reported():
    finding = check_loss(make_on_cpu("triplet", dim=16), checks=["second device"])["second device"]
    assert finding.status == "holds", finding
    assert finding.message.startswith("the host waits ")
