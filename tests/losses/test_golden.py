"""Golden values of one small fixture, worked out by an independent implementation of the corrected equations."""

import pytest
import torch

import kinfold
from kinfold.pairs import Quadruplets, Triplets

ROWS = [[2, 3, 6], [6, 2, 3], [3, 6, -2], [-3, 6, 2], [6, -2, 3], [-2, 3, 6]]
UNIT = torch.tensor(ROWS, dtype=torch.float64) / 7
RAW = UNIT * torch.tensor([1, 1.2, 0.8, 1.1, 0.9, 1], dtype=torch.float64)[:, None]
LABELS = torch.tensor([0, 1, 0, 2, 1, 2])
TRIPLETS = Triplets.from_list([(0, 2, 1), (1, 4, 0), (2, 0, 3), (3, 5, 2), (4, 1, 5), (5, 3, 4)])
AXES = torch.eye(3, dtype=torch.float64)
CENTERS = AXES[torch.tensor([[0, 1], [1, 2], [2, 0]])]
_VALID = torch.ones(6, dtype=torch.bool)
QUADRUPLETS = Quadruplets(
    TRIPLETS.anchor, TRIPLETS.positive, TRIPLETS.negative, torch.tensor([3, 5, 1, 4, 0, 2]), _VALID, _VALID
)


def value(name, embeddings=UNIT, tuples=None, **options):
    loss = kinfold.losses.create(name, **options).double()
    if loss.proxies is not None:
        loss.proxies.data.copy_(CENTERS if name == "soft-triple" else AXES)
    return loss(embeddings, LABELS, tuples=tuples).item()


@pytest.mark.parametrize(
    ("expected", "name", "settings"),
    [
        (0.933444, "contrastive", {"tuples": TRIPLETS}),
        (0.304762, "triplet", {"tuples": TRIPLETS}),
        (0.190369, "triplet", {"tuples": TRIPLETS, "squared": False}),
        (0.350083, "margin", {"tuples": TRIPLETS, "beta": 0.6}),
        (0.466777, "margin", {"tuples": TRIPLETS, "beta": 0.6, "variant": "as-coded"}),
        (0.423438, "margin", {"tuples": TRIPLETS, "beta": 1.2}),
        (0.635157, "margin", {"tuples": TRIPLETS, "beta": 1.2, "variant": "as-coded"}),
        (1.390696, "n-pair", {"embeddings": RAW, "regularization": 0.0}),
        (1.390696 + 0.005 * 1.016667, "n-pair", {"embeddings": RAW}),
        (1.390696 + 0.005, "n-pair", {"embeddings": RAW, "norm_power": 1}),
        (0.430700, "histogram", {"bins": 5}),
        (0.293304, "histogram", {"bins": 11}),
        (0.262206, "histogram", {"bins": 65}),
        (0.319002, "multi-similarity", {}),
        (2.102700, "generalized-lifted", {"embeddings": RAW, "regularization": 0.0}),
        (2.102700 + 0.005 * 1.016667, "generalized-lifted", {"embeddings": RAW}),
        (7.196289, "angular", {"embeddings": RAW, "regularization": 0.0}),
        (1.390696 + 2.902797, "angular", {"embeddings": RAW, "regularization": 0.0, "weight": 1.0}),
        (0.261933, "quadruplet", {"tuples": QUADRUPLETS, "variant": "as-run"}),
        (1.056884, "quadruplet", {"tuples": QUADRUPLETS}),
        (2.937049, "snr", {"tuples": TRIPLETS, "regularization": 0.0}),
        (2.937049 + 0.005 * 1.142857, "snr", {"tuples": TRIPLETS}),
        (15.187525, "arcface", {"num_classes": 3, "dim": 3}),
        (14.572224, "arcface", {"num_classes": 3, "dim": 3, "variant": "as-coded"}),
        (3.309294, "soft-triple", {"num_classes": 3, "dim": 3, "regularization": 0.0}),
        (3.450716, "soft-triple", {"num_classes": 3, "dim": 3}),
        (8.571652, "proxy-nca", {"num_classes": 3, "dim": 3}),
        (10.952544, "normalized-softmax", {"num_classes": 3, "dim": 3}),
    ],
)
def test_golden_value(expected, name, settings):
    assert value(name, **settings) == pytest.approx(expected, abs=1e-6)


def test_three_anchors_are_kept_by_multi_similarity():
    relation = kinfold.miners.create("multi-similarity")(UNIT, LABELS)
    assert int(relation.positives.any(dim=1).sum()) == 3
    values = kinfold.losses.create("multi-similarity", reduction="none")(UNIT, LABELS)
    assert int((values > 0).sum()) == 3
    assert values.sum().item() / 3 == pytest.approx(0.638003, abs=1e-6)
