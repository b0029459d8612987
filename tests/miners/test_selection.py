"""What each miner chooses: exact sets where it is deterministic, frequencies where it draws."""

import math

import pytest
import torch

import kinfold
from kinfold.miners.distance_weighted import log_inverse_density, negative_weights
from kinfold.miners.drawing import draw_uniform, draw_weighted
from kinfold.pairs import Relation, cosine
from tests.losses.test_golden import LABELS, UNIT
from tests.problems import batch, generator

X, Y = batch(51, dim=3, sizes=(4, 3, 3))
RELATION = Relation.from_labels(Y)
DISTANCE = torch.cdist(torch.nn.functional.normalize(X), torch.nn.functional.normalize(X))


def positives_of(a):
    return RELATION.positives[a].nonzero().flatten().tolist()


def negatives_of(a):
    return RELATION.negatives[a].nonzero().flatten().tolist()


def drawn(name, times=400, x=X, y=Y, **options):
    """For every anchor the set of (positive, negative) that turn up in many draws; None for a skipped anchor."""
    miner = kinfold.miners.create(name, generator=generator(0), **options)
    outcomes = [set() for _ in range(len(x))]
    for _ in range(times):
        selected = miner(x, y)
        for a, p, n, ok in zip(
            selected.anchor.tolist(),
            selected.positive.tolist(),
            selected.negative.tolist(),
            selected.valid.tolist(),
            strict=True,
        ):
            outcomes[a].add((p, n) if ok else None)
    return outcomes


def test_hard_is_farthest_positive_and_nearest_negative():
    selected = kinfold.miners.create("hard")(X, Y)
    for a in range(len(X)):
        assert selected.positive[a] == max(positives_of(a), key=lambda p: DISTANCE[a, p])
        assert selected.negative[a] == min(negatives_of(a), key=lambda n: DISTANCE[a, n])


def test_random_reaches_every_triplet():
    for a, outcomes in enumerate(drawn("random", times=800)):
        assert outcomes == {(p, n) for p in positives_of(a) for n in negatives_of(a)}


def test_random_over_the_batch_draws_distinct_triplets_uniformly():
    miner = kinfold.miners.create("random", scope="batch", generator=generator(0))
    total = sum(len(positives_of(a)) * len(negatives_of(a)) for a in range(len(X)))
    tally = {}
    for _ in range(2000):
        selected = miner(X, Y)
        rows = list(zip(selected.anchor.tolist(), selected.positive.tolist(), selected.negative.tolist(), strict=True))
        assert len(set(rows)) == len(rows) == len(X)
        assert bool(selected.valid.all())
        for a, p, n in rows:
            assert p in positives_of(a)
            assert n in negatives_of(a)
            tally[a, p, n] = tally.get((a, p, n), 0) + 1
    assert len(tally) == total
    expected = 2000 * len(X) / total
    assert all(abs(count - expected) < 6 * math.sqrt(expected) for count in tally.values())


def test_random_over_the_batch_with_fewer_triplets_than_anchors():
    y = torch.tensor([0, 0, 1, 2, 3, 4, 5, 6, 7, 8])
    keep = torch.zeros(10, 10, dtype=torch.bool)
    keep[0, 1] = True
    selected = kinfold.miners.create("random", scope="batch")(X, relation=keep)
    assert int(selected.valid.sum()) == 8
    assert set(selected.negative[selected.valid].tolist()) == set(range(2, 10))
    assert len(y) == len(selected.valid)


@pytest.mark.parametrize("labels", [torch.zeros(10), torch.arange(10)])
def test_random_over_a_batch_without_triplets_selects_none(labels):
    selected = kinfold.miners.create("random", scope="batch")(X, labels.long())
    assert len(selected.anchor) == len(X)
    assert not bool(selected.valid.any())


@pytest.mark.parametrize("squared", [False, True])
def test_semihard_draws_from_the_band_above_the_positive(squared):
    distance = DISTANCE.square() if squared else DISTANCE
    fallbacks = 0
    for a, outcomes in enumerate(drawn("semihard", times=800, margin=0.3, squared=squared)):
        expected = set()
        for p in positives_of(a):
            band = [n for n in negatives_of(a) if distance[a, p] < distance[a, n] < distance[a, p] + 0.3]
            fallbacks += not band
            expected |= {(p, n) for n in band or negatives_of(a)}
        assert outcomes == expected
    assert fallbacks > 0
    for a, outcomes in enumerate(drawn("semihard", times=400, margin=0.3, squared=squared, fallback="drop")):
        for pair in outcomes - {None}:
            assert distance[a, pair[0]] < distance[a, pair[1]] < distance[a, pair[0]] + 0.3


def test_softhard_draws_from_the_hard_ones():
    for a, outcomes in enumerate(drawn("softhard")):
        nearest, farthest = min(DISTANCE[a, n] for n in negatives_of(a)), max(DISTANCE[a, p] for p in positives_of(a))
        hard_positives = [p for p in positives_of(a) if DISTANCE[a, p] > nearest] or positives_of(a)
        hard_negatives = [n for n in negatives_of(a) if DISTANCE[a, n] < farthest] or negatives_of(a)
        assert outcomes == {(p, n) for p in hard_positives for n in hard_negatives}


def test_multi_similarity_keeps_what_the_definition_says():
    similarity = 1 - DISTANCE.square() / 2
    selected = kinfold.miners.create("multi-similarity", epsilon=0.2)(X, Y)
    for a in range(len(X)):
        nearest, farthest = (
            max(similarity[a, n] for n in negatives_of(a)),
            min(similarity[a, p] for p in positives_of(a)),
        )
        assert selected.positives[a].nonzero().flatten().tolist() == [
            p for p in positives_of(a) if similarity[a, p] - 0.2 < nearest
        ]
        assert selected.negatives[a].nonzero().flatten().tolist() == [
            n for n in negatives_of(a) if similarity[a, n] + 0.2 > farthest
        ]


def test_semihard_band_keeps_all_positives_and_every_negative_of_the_band():
    similarity = 1 - DISTANCE.square() / 2
    selected = kinfold.miners.create("semihard-band")(X, Y)
    assert torch.equal(selected.positives, RELATION.positives)
    assert torch.equal(selected.negatives, RELATION.negatives & (similarity > 0.3) & (similarity < 0.5))


def test_semihard_pairs_selects_2560_pairs_of_the_papers_batch():
    """640 items, five of each class: 1,280 positive pairs and one negative for each, as Qi et al. count."""
    x, y = torch.randn(640, 8, generator=generator(0)), torch.arange(640) // 5
    selected = kinfold.miners.create("semihard-pairs")(x, y)
    ordered = int(selected.positives.sum()) + int(selected.negatives.sum())
    assert ordered == 2 * 2560  # every pair stands in the matrix from both of its sides
    assert torch.equal(selected.negatives.sum(dim=1), selected.positives.sum(dim=1))
    similarity = cosine(x, x)[selected.negatives]
    assert bool(((similarity > 0.3) & (similarity < 0.5)).all())


@pytest.mark.parametrize("fallback", ["uniform", "drop"])
def test_semihard_pairs_draws_one_negative_per_positive_pair_from_the_band(fallback):
    similarity = 1 - DISTANCE.square() / 2
    band = RELATION.negatives & (similarity > 0.3) & (similarity < 0.7)
    miner = kinfold.miners.create(
        "semihard-pairs", threshold=0.7, margin=0.4, fallback=fallback, generator=generator(0)
    )
    times, tally = 2000, torch.zeros_like(similarity)
    for _ in range(times):
        selected = miner(X, Y)
        assert torch.equal(selected.positives, RELATION.positives)
        tally += selected.negatives
    for a in range(len(X)):
        wanted, inside = len(positives_of(a)), int(band[a].sum())
        outside = len(negatives_of(a)) - inside
        chance = torch.zeros(len(X), dtype=torch.float64)
        chance[band[a]] = min(1.0, wanted / max(1, inside))
        if fallback == "uniform":
            chance[RELATION.negatives[a] & ~band[a]] = max(0, wanted - inside) / max(1, outside)
        assert (tally[a] / times).tolist() == pytest.approx(chance.tolist(), abs=0.06)
    sizes = band.sum(dim=1) - RELATION.positives.sum(dim=1)
    assert sizes.min() < 0 < sizes.max(), "the batch should have anchors with a short band and with a long one"


def test_the_log_density_has_the_published_values_at_dimension_128():
    for distance, expected in [(0.5, 91.4), (1.0, 18.0), (1.414, -0.35), (1.7, 13.3), (1.9, 64.6), (1.99, 201)]:
        similarity = torch.tensor([[1 - distance**2 / 2]], dtype=torch.float64)
        assert log_inverse_density(similarity, 128, 0.5).item() == pytest.approx(
            expected, abs=0.5 if expected > 100 else 0.06
        )


def test_distance_weights_have_the_golden_probabilities():
    negatives = Relation.from_labels(LABELS).negatives
    for cutoff, expected in [
        (None, [0.33181, 0, 0.237007, 0.194177, 0, 0.237007]),
        (1.4, [1, 0, 0, 0, 0, 0]),
    ]:
        weights = negative_weights(cosine(UNIT, UNIT), negatives, 3, 0.5, cutoff)[4]
        assert (weights / weights.sum()).tolist() == pytest.approx(expected, abs=6e-7)


def test_distance_weighted_draws_with_those_probabilities():
    miner = kinfold.miners.create("distance-weighted", upper_cutoff=None, generator=generator(0))
    count = torch.zeros(6)
    for _ in range(4000):
        count[miner(UNIT, LABELS).negative[4]] += 1
    assert (count / 4000).tolist() == pytest.approx([0.33181, 0, 0.237007, 0.194177, 0, 0.237007], abs=0.03)


def test_distance_weighted_falls_back_to_uniform_beyond_the_cutoff():
    x = torch.tensor([[1.0, 0.0], [1.0, 0.1], [-1.0, 0.0], [-1.0, 0.2]])
    y = torch.tensor([0, 0, 1, 2])
    assert {pair[1] for pair in drawn("distance-weighted", x=x, y=y)[0]} == {2, 3}


def test_distance_weighted_with_a_singleton():
    x, y = batch(52)
    lonely = int((y == 2).nonzero())
    assert drawn("distance-weighted", times=3, x=x, y=y)[lonely] == {None}
    kept = drawn("distance-weighted", times=3, x=x, y=y, keep_singletons=True)[lonely]
    assert {pair[0] for pair in kept} == {lonely}


def test_distance_weighted_survives_antipodes_and_large_dimensions():
    x = torch.cat([torch.eye(4), -torch.eye(4)]).repeat(1, 128)
    selected = kinfold.miners.create("distance-weighted", upper_cutoff=None)(x, torch.arange(8) // 2)
    assert bool(selected.valid.all())


def test_distance_weighted_pairs_takes_as_many_negatives_as_positives():
    selected = kinfold.miners.create("distance-weighted-pairs", upper_cutoff=None)(X, Y)
    assert torch.equal(selected.positives, RELATION.positives)
    assert torch.equal(selected.negatives.sum(dim=1), RELATION.positives.sum(dim=1))


def test_distance_weighted_pairs_prefers_by_weight():
    """The first of two draws without replacement has the distance weights as its chances; both together more."""
    miner = kinfold.miners.create("distance-weighted-pairs", upper_cutoff=None, generator=generator(0))
    count = torch.zeros(6)
    for _ in range(4000):
        count += miner(UNIT, LABELS).negatives[4]
    assert (count / 4000).tolist() == pytest.approx([0.33181, 0, 0.237007, 0.194177, 0, 0.237007], abs=0.03)


def test_draw_follows_the_weights_and_never_takes_a_zero():
    weights = torch.tensor([[0.0, 1.0, 0.0, 3.0, 0.0], [0.0, 0.0, 0.0, 0.0, 0.0]]).repeat_interleave(20000, dim=0)
    index, selected = draw_weighted(weights, generator(0))
    assert bool(selected[:20000].all())
    assert not selected[20000:].any()
    counts = torch.bincount(index[:20000], minlength=5)
    assert counts[[0, 2, 4]].sum() == 0
    assert counts[3] / 20000 == pytest.approx(0.75, abs=0.02)


def test_choose_is_uniform_over_many_columns():
    mask = torch.ones(1, 5, dtype=torch.bool).repeat(50000, 1)
    index, _ = draw_uniform(mask, generator(0))
    assert (torch.bincount(index) / 50000).tolist() == pytest.approx([0.2] * 5, abs=0.01)


def test_bad_options_are_refused():
    for name, options in [
        ("semihard", {"fallback": "none"}),
        ("semihard", {"margin": 0.0}),
        ("semihard-pairs", {"margin": -1.0}),
        ("semihard-pairs", {"fallback": "none"}),
        ("semihard-band", {"margin": 0.0}),
        ("random", {"scope": "epoch"}),
        ("random", {"scope": "batch", "switch": 0.5}),
        ("distance-weighted", {"lower_cutoff": 0.0}),
        ("distance-weighted", {"upper_cutoff": 0.1}),
    ]:
        with pytest.raises(ValueError, match=r"got|needs"):
            kinfold.miners.create(name, **options)


def test_pair_margin_keeps_far_positives_and_near_negatives():
    selected = kinfold.miners.create("pair-margin", positive_margin=0.9, negative_margin=1.3)(X, Y)
    assert torch.equal(selected.positives, RELATION.positives & (DISTANCE > 0.9))
    assert torch.equal(selected.negatives, RELATION.negatives & (DISTANCE < 1.3))
    assert 0 < int(selected.positives.sum()) < int(RELATION.positives.sum())
    assert 0 < int(selected.negatives.sum()) < int(RELATION.negatives.sum())


@pytest.mark.parametrize("squared", [False, True])
def test_all_triplets_lists_every_triplet_of_its_kind(squared):
    distance = DISTANCE.square() if squared else DISTANCE
    conditions = {
        "hard": lambda gap: gap <= 0,
        "semihard": lambda gap: 0 < gap <= 0.4,
        "violating": lambda gap: gap <= 0.4,
        "easy": lambda gap: gap > 0.4,
        "all": lambda gap: True,
    }
    every = [(a, p, n) for a in range(len(X)) for p in positives_of(a) for n in negatives_of(a)]
    sizes = {}
    for difficulty, condition in conditions.items():
        selected = kinfold.miners.create("all-triplets", difficulty=difficulty, margin=0.4, squared=squared)(X, Y)
        rows = zip(selected.anchor.tolist(), selected.positive.tolist(), selected.negative.tolist(), strict=True)
        expected = [(a, p, n) for a, p, n in every if condition(float(distance[a, n] - distance[a, p]))]
        assert list(rows) == expected
        assert bool(selected.valid.all())
        sizes[difficulty] = len(expected)
    assert sizes["hard"] + sizes["semihard"] == sizes["violating"]
    assert sizes["violating"] + sizes["easy"] == sizes["all"] == len(every)
    assert min(sizes.values()) > 0


def test_the_triplet_loss_of_all_triplets_is_that_without_a_miner():
    for difficulty, average in (("all", "all"), ("violating", "active")):
        loss = kinfold.losses.create("triplet", squared=False, average=average)
        tuples = kinfold.miners.create("all-triplets", difficulty=difficulty)(X, Y)
        assert math.isclose(float(loss(X, Y, tuples=tuples)), float(loss(X, Y)), rel_tol=1e-12)


def pick(choice, candidates, distance, *, is_positive, limit=None):
    """The easy, semi-hard or hard item among the candidates, None if there is none."""
    if choice == "semihard":
        candidates = [c for c in candidates if (distance[c] < limit if is_positive else distance[c] > limit)]
    if not candidates:
        return None
    nearest = (choice == "easy") == is_positive
    return (min if nearest else max)(candidates, key=lambda c: distance[c])


@pytest.mark.parametrize("positive", ["easy", "semihard", "hard"])
@pytest.mark.parametrize("negative", ["easy", "semihard", "hard"])
@pytest.mark.parametrize("limits", [None, (0.6, 1.5)])
def test_easy_hard_picks_what_the_definition_says(positive, negative, limits):
    if positive == negative == "semihard":
        with pytest.raises(ValueError, match="semi-hard item"):
            kinfold.miners.create("easy-hard", positive=positive, negative=negative)
        return
    options = {"positive": positive, "negative": negative, "positive_range": limits, "negative_range": limits}
    selected = kinfold.miners.create("easy-hard", **options)(X, Y)
    for a in range(len(X)):
        near, far = (
            [c for c in columns if limits is None or limits[0] <= DISTANCE[a, c] <= limits[1]]
            for columns in (positives_of(a), negatives_of(a))
        )
        p = n = None
        if positive != "semihard":
            p = pick(positive, near, DISTANCE[a], is_positive=True)
        else:
            n = pick(negative, far, DISTANCE[a], is_positive=False)
            p = None if n is None else pick("semihard", near, DISTANCE[a], is_positive=True, limit=DISTANCE[a, n])
        if n is None and (negative != "semihard" or p is not None):
            limit = None if p is None else DISTANCE[a, p]
            n = pick(negative, far, DISTANCE[a], is_positive=False, limit=limit)
        assert bool(selected.valid[a]) == (p is not None and n is not None)
        if selected.valid[a]:
            assert (int(selected.positive[a]), int(selected.negative[a])) == (p, n)


def test_easy_hard_with_all_items_of_one_side_selects_pairs():
    selected = kinfold.miners.create("easy-hard", positive="all", negative="hard")(X, Y)
    assert torch.equal(selected.positives, RELATION.positives)
    for a in range(len(X)):
        assert selected.negatives[a].nonzero().flatten().tolist() == [
            min(negatives_of(a), key=lambda n: DISTANCE[a, n])
        ]
    selected = kinfold.miners.create("easy-hard", positive="easy", negative="all")(X, Y)
    assert torch.equal(selected.negatives, RELATION.negatives)
    for a in range(len(X)):
        assert selected.positives[a].nonzero().flatten().tolist() == [
            min(positives_of(a), key=lambda p: DISTANCE[a, p])
        ]
    with pytest.raises(ValueError, match="semi-hard item"):
        kinfold.miners.create("easy-hard", positive="all")
    with pytest.raises(ValueError, match="did you mean 'easy'"):
        kinfold.miners.create("easy-hard", positive="esy")
    with pytest.raises(ValueError, match="did you mean 'hard'"):
        kinfold.miners.create("all-triplets", difficulty="hrd")
