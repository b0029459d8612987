"""What every registered miner must do."""

import copy
import math
import pickle

import pytest
import torch

import kinfold
from kinfold.miners import miner
from kinfold.pairs import Relation, Triplets
from tests.contract.test_losses import ODD_BATCHES, spoiled
from tests.problems import batch, generator

MINERS = kinfold.list("miners")
TRIPLET_MINERS = ["random", "semihard", "softhard", "hard", "distance-weighted"]
LISTING_MINERS = ["all-triplets"]  # any number of triplets instead of one for each anchor
X, Y = batch(41, dtype=torch.float32)


def same(a, b):
    return type(a) is type(b) and all(torch.equal(x, y) for x, y in zip(fields(a), fields(b), strict=True))


def fields(selected):
    return [v for v in vars(selected).values() if v is not None]


def check(name, selected, relation: Relation):
    """A selection is part of the relation; a valid triplet has a positive pair and a negative pair."""
    if isinstance(selected, Relation):
        assert not (selected.positives & ~relation.positives).any()
        assert not (selected.negatives & ~relation.negatives).any()
        return
    assert isinstance(selected, Triplets)
    assert name in LISTING_MINERS or len(selected.valid) == len(relation.positives)
    valid = selected.valid
    assert bool(relation.positives[selected.anchor[valid], selected.positive[valid]].all())
    assert bool(relation.negatives[selected.anchor[valid], selected.negative[valid]].all())


@pytest.mark.parametrize("name", MINERS)
@pytest.mark.parametrize("case", ODD_BATCHES)
def test_odd_batches(name, case):
    x, y = ODD_BATCHES[case]
    check(name, kinfold.miners.create(name)(x, y), Relation.from_labels(y))


@pytest.mark.parametrize("name", MINERS)
@pytest.mark.parametrize("part", ["entry", "row", "all"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_embeddings_that_are_not_finite_are_mined_without_an_error_and_the_loss_is_nan(name, part, value):
    bad = spoiled(X, value, part)
    selection = kinfold.miners.create(name)(bad, Y)
    check(name, selection, Relation.from_labels(Y))
    loss = kinfold.losses.create("contrastive")
    assert loss(bad, Y, tuples=selection).isnan()
    against = kinfold.miners.create(name)(X, Y, ref_embeddings=bad, ref_labels=Y)
    check(name, against, Relation.from_labels(Y, Y))
    assert loss(X, Y, ref_embeddings=bad, ref_labels=Y, tuples=against).isnan()


@pytest.mark.parametrize("name", MINERS)
@pytest.mark.parametrize("seed", range(20))
def test_only_pairs_of_the_relation_are_chosen(name, seed):
    x, y = batch(seed)
    check(name, kinfold.miners.create(name, **source(name, seed))(x, y), Relation.from_labels(y))


def source(name, seed):
    parameters = kinfold.registry.resolve("miners", name).__init__.__annotations__
    return {"generator": generator(seed)} if "generator" in parameters else {}


@pytest.mark.parametrize("name", MINERS)
def test_a_reference_set_is_indexed_and_own_items_are_left_out(name):
    r, z = batch(42, sizes=(4, 4, 4), dtype=torch.float32)
    items = torch.arange(len(z))
    selected = kinfold.miners.create(name)(r[:5], z[:5], ref_embeddings=r, ref_labels=z, ids=items[:5], ref_ids=items)
    check(name, selected, Relation.from_labels(z[:5], z, items[:5, None] == items))


@pytest.mark.parametrize("name", MINERS)
def test_an_empty_reference_set_gives_nothing(name):
    selected = kinfold.miners.create(name)(X, Y, ref_embeddings=X[:0], ref_labels=Y[:0])
    assert not selected.valid.any() if isinstance(selected, Triplets) else selected.positives.numel() == 0


@pytest.mark.parametrize("name", MINERS)
def test_labels_relation_and_half_precision_are_seen_alike(name):
    def mine(*args, **options):
        return kinfold.miners.create(name, **source(name, 3))(*args, **options)

    expected = mine(X, Y)
    assert same(mine(X, relation=Y[:, None] == Y), expected)
    assert same(mine(X, [f"class {label}" for label in Y]), expected)
    assert same(mine(X * 7, Y), expected)
    half = X.half()
    assert same(mine(half, Y), mine(half.float(), Y))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert same(mine(X, Y), expected)


@pytest.mark.parametrize("name", MINERS)
def test_random_numbers_come_from_the_generator_alone(name):
    before = torch.get_rng_state()
    first, second = (kinfold.miners.create(name, **source(name, 5)) for _ in range(2))
    assert same(first(X, Y), second(X, Y))
    assert same(first(X, Y), second(X, Y))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("name", MINERS)
def test_state_deepcopy_and_pickle_go_on_with_the_same_numbers(name):
    miner = kinfold.miners.create(name)
    miner(X, Y)
    fresh = kinfold.miners.create(name)
    fresh.load_state_dict(miner.state_dict())
    copies = [fresh, copy.deepcopy(miner), pickle.loads(pickle.dumps(miner))]
    expected = miner(X, Y)
    assert all(same(other(X, Y), expected) for other in copies)


@pytest.mark.parametrize("name", MINERS)
def test_no_graph_and_no_change_of_the_input(name):
    leaf = X.clone().requires_grad_()
    kinfold.miners.create(name)(leaf, Y)
    assert leaf.grad is None
    assert torch.equal(leaf.detach(), X)


@pytest.mark.parametrize("name", MINERS)
def test_wrong_input(name):
    miner = kinfold.miners.create(name)
    with pytest.raises(ValueError, match="labels"):
        miner(X)
    with pytest.raises(ValueError, match="one label per row"):
        miner(X, Y[1:])
    with pytest.raises(ValueError, match="boolean"):
        miner(X, relation=torch.full((len(X), len(X)), 0.5))
    with pytest.raises(ValueError, match="give one of them"):
        miner(X, Y, relation=Y[:, None] == Y)


@pytest.mark.parametrize("name", TRIPLET_MINERS)
def test_switch_pushes_positives_apart(name):
    """(a, a, n) with n a class mate, for anchors that have one, at the given rate."""
    x, y = torch.randn(400, 8, generator=generator(0)), torch.arange(400) // 4
    x, y = torch.cat([x, x[:1]]), torch.cat([y, torch.tensor([999])])  # one singleton
    selected = kinfold.miners.create(name, switch=0.4, generator=generator(1))(x, y)
    switched = selected.valid & (selected.positive == selected.anchor)
    assert 0.3 < switched.float().mean() < 0.5
    assert not switched[-1]
    assert bool((y[selected.negative[switched]] == y[selected.anchor[switched]]).all())
    assert bool((selected.negative[switched] != selected.anchor[switched]).all())
    rest = selected.valid & ~switched
    assert bool((y[selected.positive[rest]] == y[selected.anchor[rest]]).all())
    assert bool((y[selected.negative[rest]] != y[selected.anchor[rest]]).all())


@pytest.mark.parametrize("name", TRIPLET_MINERS)
def test_switch_in_a_reference_set_needs_to_know_the_anchor_there(name):
    miner = kinfold.miners.create(name, switch=1.0)
    with pytest.raises(ValueError, match="ref_ids"):
        miner(X, Y, ref_embeddings=X, ref_labels=Y)
    order = torch.randperm(len(X), generator=generator(2))
    selected = miner(X, Y, ref_embeddings=X[order], ref_labels=Y[order], ids=torch.arange(len(X)), ref_ids=order)
    switched = selected.valid
    assert torch.equal(order[selected.positive[switched]], selected.anchor[switched])
    with pytest.raises(ValueError, match="probability"):
        kinfold.miners.create(name, switch=1.5)


@pytest.mark.parametrize("name", [n for n in MINERS if n not in TRIPLET_MINERS])
def test_pair_miners_have_no_switch(name):
    with pytest.raises(ValueError, match="switch"):
        kinfold.miners.create(name, switch=0.1)


@pytest.mark.parametrize("name", MINERS)
def test_large_batches_are_mined_in_row_chunks(name, monkeypatch):
    x, y = torch.randn(200, 6, generator=generator(4)), torch.arange(200) // 5
    whole = kinfold.miners.create(name)(x, y)
    monkeypatch.setattr(miner, "CHUNK_PAIRS", 1)
    selected = kinfold.miners.create(name)(x, y)
    check(name, selected, Relation.from_labels(y))
    if name in ("all", "multi-similarity", "pair-margin", "semihard-band", "hard", "easy-hard", "all-triplets"):
        assert same(selected, whole)
    elif isinstance(selected, Triplets) and name != "random":
        assert torch.equal(selected.valid, whole.valid)
    if name in TRIPLET_MINERS:
        switched = kinfold.miners.create(name, switch=1.0)(x, y)
        assert torch.equal(switched.positive, switched.anchor)
        assert torch.equal(switched.anchor, torch.arange(200))
