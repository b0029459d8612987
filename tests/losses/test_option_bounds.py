"""Options at the very ends of their ranges: the last value that means something, and the first that does not."""

import math

import pytest
import torch

from tests.problems import batch, is_finite, make

X, Y = batch(131, dtype=torch.float32)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("angular", {"angle": 1e-3}),
        ("angular", {"angle": 89.0}),
        ("arcface", {"margin": 0.0}),
        ("arcface", {"margin": 3.1}),
        ("fastap", {"bins": 1}),
        ("histogram", {"bins": 2}),
        ("precision-at-k", {"k": 1}),
        ("ranked-list", {"balance": 0.0}),
        ("ranked-list", {"balance": 1.0}),
        ("soft-triple", {"centers": 1}),
        ("binomial", {"positive_scale": 1e-3}),
    ],
)
def test_the_ends_of_a_range_belong_to_it(name, options):
    assert is_finite(make(name, **options)(X, Y))


@pytest.mark.parametrize("name", ["margin", "proxy-nca", "softmax", "soft-triple"])
def test_one_class_is_enough_for_parameters(name):
    assert is_finite(make(name, num_classes=1)(X, torch.zeros_like(Y)))
    with pytest.raises(ValueError, match="reindex"):
        make(name, num_classes=1)(X, torch.ones_like(Y))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("angular", {"angle": 0.0}),
        ("angular", {"angle": 90.0}),
        ("arcface", {"margin": -0.01}),
        ("arcface", {"margin": math.pi}),
        ("arcface", {"variant": "as coded"}),
        ("cosface", {"scale": 0.0}),
        ("fastap", {"bins": 0}),
        ("hap2s", {"sigma": 0.0}),
        ("hap2s", {"weighting": "linear"}),
        ("lifted", {"variant": "song"}),
        ("quadruplet", {"variant": "as-coded"}),
        ("ranked-list", {"balance": -0.01}),
        ("ranked-list", {"balance": 1.01}),
        ("similarity-contrastive", {"variant": "as-run"}),
        ("soft-triple", {"centers": 0}),
        ("soft-triple", {"temperature": -1.0}),
        ("supcon", {"temperature": math.inf}),
    ],
)
def test_what_lies_beyond_is_refused(name, options):
    with pytest.raises(ValueError, match="must be"):
        make(name, **options)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("hap2s", {"power": 5.0}),
        ("hap2s", {"weighting": "polynomial", "sigma": 0.5}),
        ("lifted", {"margin": 0.5}),
        ("margin", {"learn_beta": False, "beta_regularization": 0.1}),
    ],
)
def test_an_option_that_another_one_switches_off_is_refused(name, options):
    with pytest.raises(ValueError, match="leave"):
        make(name, **options)
