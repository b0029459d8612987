"""The repr of a loss shows its options, and neither tensors nor generators."""

import torch

import kinfold


def test_options_are_shown():
    assert repr(kinfold.losses.create("triplet", margin=0.25)).startswith("Triplet(margin=0.25")


def test_parameters_and_generators_are_left_out():
    loss = kinfold.losses.create("soft-triple", num_classes=3, dim=2, generator=torch.Generator())
    assert "Generator" not in repr(loss)
    assert "tensor(" not in repr(loss)
    assert "centers=" in repr(loss)
