"""Miners measure pairs as the loss that they serve, or as they are told."""

import inspect

import pytest
import torch

import kinfold
from kinfold.losses import Mined
from kinfold.pairs import Relation, Triplets
from kinfold.pairs.distances import DISTANCES
from tests.contract.test_miners import MINERS, check, same, source
from tests.losses.references.distances import MEASURES
from tests.problems import batch


def takes_distance(name):
    return "distance" in inspect.signature(kinfold.registry.resolve("miners", name)).parameters


TAKERS = [name for name in MINERS if takes_distance(name)]
OTHERS = [name for name in MINERS if not takes_distance(name)]


def mine(name, x, y, **options):
    return kinfold.miners.create(name, **source(name, 3), **options)(x, y)


def measure(name, x):
    """Similarities and distances of all pairs by the naive loop."""
    rows = x.numpy()
    return [torch.tensor([[function(a, b) for b in rows] for a in rows]) for function in MEASURES[name]]


@pytest.mark.parametrize("name", TAKERS)
@pytest.mark.parametrize("distance", DISTANCES)
def test_every_distance_gives_pairs_of_the_relation(name, distance):
    x, y = batch(5)
    check(name, mine(name, x, y, distance=distance), Relation.from_labels(y))


@pytest.mark.parametrize("distance", DISTANCES)
def test_hard_and_pair_margin_select_by_the_naive_distances(distance):
    x, y = batch(6)
    relation = Relation.from_labels(y)
    _, distances = measure(distance, x)
    hard = mine("hard", x, y, distance=distance)
    for a in hard.valid.nonzero().flatten().tolist():
        assert hard.positive[a] == distances[a].masked_fill(~relation.positives[a], -torch.inf).argmax()
        assert hard.negative[a] == distances[a].masked_fill(~relation.negatives[a], torch.inf).argmin()
    middle = float(distances.median()) + 1e-3
    kept = mine("pair-margin", x, y, distance=distance, positive_margin=middle, negative_margin=middle)
    assert torch.equal(kept.positives, relation.positives & (distances > middle))
    assert torch.equal(kept.negatives, relation.negatives & (distances < middle))


@pytest.mark.parametrize("distance", DISTANCES)
def test_multi_similarity_selects_by_the_naive_similarities(distance):
    x, y = batch(7)
    relation = Relation.from_labels(y)
    similarities, _ = measure(distance, x)
    nearest = similarities.masked_fill(~relation.negatives, -torch.inf).amax(dim=1, keepdim=True)
    farthest = similarities.masked_fill(~relation.positives, torch.inf).amin(dim=1, keepdim=True)
    kept = mine("multi-similarity", x, y, distance=distance)
    assert torch.equal(kept.positives, relation.positives & (similarities < nearest + 0.1))
    assert torch.equal(kept.negatives, relation.negatives & (similarities > farthest - 0.1))


@pytest.mark.parametrize("distance", ["euclidean", "hyperbolic", {"name": "hyperbolic", "curvature": 1.0}])
def test_a_miner_takes_the_distance_of_its_loss(distance):
    x, y = batch(8)
    loss = kinfold.losses.create("triplet", squared=False, distance=distance)
    followed, explicit = (Mined(loss, kinfold.miners.create("hard", distance=option)) for option in (None, distance))
    cosine = Mined(loss, kinfold.miners.create("hard", distance="cosine"))
    torch.testing.assert_close(followed(x, y), explicit(x, y), rtol=0, atol=0)
    assert followed(x, y) != cosine(x, y)
    assert same(followed.miner(x, y), mine("hard", x, y, distance=distance))
    assert same(cosine.miner(x, y), mine("hard", x, y))


def test_a_miner_takes_the_measure_of_the_paper_too():
    x, y = batch(9)
    for name, distance in {
        "snr": "snr",
        "n-pair": "dot",
        "generalized-lifted": "euclidean",
        "supcon": "cosine",
    }.items():
        mined = Mined(name, "multi-similarity" if name != "snr" else "hard")
        assert same(mined.miner(x, y), mine("multi-similarity" if name != "snr" else "hard", x, y, distance=distance))


@pytest.mark.parametrize("name", OTHERS)
def test_other_miners_keep_to_unit_vectors(name):
    """The density of distance-weighted sampling is that of the sphere; the others do not measure."""
    x, y = batch(10)
    expected = mine(name, x, y)
    mined = Mined(
        kinfold.losses.create("contrastive", distance="hyperbolic"), kinfold.miners.create(name, **source(name, 3))
    )
    assert same(mined.miner(x, y), expected)
    with pytest.raises(ValueError, match="distance"):
        kinfold.miners.create(name, distance="hyperbolic")


def test_chunks_mine_the_same(monkeypatch):
    x, y = torch.randn(200, 6, generator=torch.Generator().manual_seed(4)), torch.arange(200) // 5
    expected = mine("hard", x, y, distance="hyperbolic")
    monkeypatch.setattr("kinfold.miners.miner.CHUNK_PAIRS", 1)
    assert isinstance(expected, Triplets)
    assert same(mine("hard", x, y, distance="hyperbolic"), expected)
