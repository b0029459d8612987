"""The two-dimensional toy: its points, its triplets and loss against loops, and what the variants come to."""

import math
from collections import Counter
from itertools import combinations, pairwise

import numpy as np
import pytest
import torch

from kinfold.losses import create
from kinfold.papers import published, toy

RULES = {  # variant -> what (a, p, n) becomes, as it stands and switched
    "plain": (lambda a, p, n: (a, p, n), lambda a, p, n: (a, p, n)),
    "push-only": (lambda a, p, n: (a, a, n), lambda a, p, n: (a, a, n)),
    "as-published": (lambda a, p, n: (a, a, n), lambda a, p, n: (a, a, p)),
    "switch": (lambda a, p, n: (a, p, n), lambda a, p, n: (a, p, p)),
    "miner-rule": (lambda a, p, n: (a, p, n), lambda a, p, n: (a, a, p)),
}
SWITCHING = ("as-published", "switch", "miner-rule")


def listed(labels):
    """Every (a, p, n), by loops."""
    items = range(len(labels))
    return [
        (a, p, n)
        for a in items
        for p in items
        for n in items
        if a != p and labels[a] == labels[p] and labels[a] != labels[n]
    ]


def rows(triplets):
    assert triplets.valid.all()
    return list(zip(triplets.anchor.tolist(), triplets.positive.tolist(), triplets.negative.tolist(), strict=True))


def line_points(start, end):
    return {tuple(np.round(point, 5)) for point in np.linspace(start, end, 100)}


def test_the_diagonal_has_the_published_coordinates():
    drawn = toy.make_points("diagonal", seed=3)
    training = [line_points((x, x), (x + 0.2, x + 0.2)) for x in (0.10, 0.35, 0.60, 0.85)]
    testing = [
        line_points((0.2, 0.2), (0.2, 0.4)),
        line_points((0.2, 0.55), (0.2, 0.85)),
        line_points((0.4, 0.2), (0.6, 0.2)),
        line_points((0.7, 0.2), (0.9, 0.2)),
    ]
    for points, labels, lines in (
        (drawn.train, drawn.train_labels, training),
        (drawn.test, drawn.test_labels, testing),
    ):
        assert Counter(labels.tolist()) == {0: 15, 1: 15, 2: 15, 3: 15}
        for label, line in enumerate(lines):
            result = {tuple(np.round(point, 5)) for point in points[labels == label].double().numpy()}
            assert len(result) == 15  # none twice
            assert all(min(math.dist(point, expected) for expected in line) < 2e-5 for point in result)


def test_vertical_lines_differ_in_x_to_learn_and_in_y_to_test():
    points = toy.make_points("vertical", seed=0)
    assert [points.train[points.train_labels == c, 0].unique().numel() for c in range(4)] == [1, 1, 1, 1]
    assert points.train[:, 0].unique().numel() == 4
    assert points.test[:, 0].unique().numel() == 1
    spans = [points.test[points.test_labels == c, 1].aminmax() for c in range(4)]
    assert all(below.max < above.min for below, above in pairwise(spans))


@pytest.mark.parametrize("variant", RULES)
def test_triplets_are_all_of_the_batch_after_the_rule(variant):
    labels = torch.tensor([0, 1, 0, 2, 1, 0, 3])
    as_it_stands, switched = RULES[variant]
    expected = Counter(as_it_stands(*triplet) for triplet in listed(labels.tolist()))
    assert Counter(rows(toy.list_triplets(labels, variant, 0.0, torch.Generator()))) == expected
    if variant in SWITCHING:
        expected = Counter(switched(*triplet) for triplet in listed(labels.tolist()))
        assert Counter(rows(toy.list_triplets(labels, variant, 1.0, torch.Generator()))) == expected


@pytest.mark.parametrize("variant", SWITCHING)
def test_each_triplet_is_switched_independently_with_the_given_probability(variant):
    labels = torch.arange(24) % 4
    as_it_stands, switched = RULES[variant]
    result = rows(toy.list_triplets(labels, variant, 0.3, torch.Generator().manual_seed(1)))
    every = listed(labels.tolist())
    assert len(result) == len(every) == 24 * 5 * 18
    changed = [row == switched(*triplet) for row, triplet in zip(result, every, strict=True)]
    unchanged = [row == as_it_stands(*triplet) for row, triplet in zip(result, every, strict=True)]
    assert all(a != b for a, b in zip(changed, unchanged, strict=True))
    spread = math.sqrt(0.3 * 0.7 / len(every))
    assert abs(sum(changed) / len(every) - 0.3) < 4 * spread
    by_anchor = Counter(triplet[0] for triplet, is_changed in zip(every, changed, strict=True) if is_changed)
    assert len(by_anchor) == 24
    assert max(by_anchor.values()) < 5 * 18  # not anchor by anchor


@pytest.mark.parametrize("variant", RULES)
def test_the_loss_is_that_of_all_triplets_by_loops(variant):
    draw = torch.Generator().manual_seed(5)
    angles = 0.2 * torch.rand(9, generator=draw, dtype=torch.float64)  # near enough for the margin to matter
    embeddings = torch.stack([angles.cos(), angles.sin()], dim=1) * (1 + torch.rand(9, 1, generator=draw))
    labels = torch.tensor([0, 0, 1, 1, 2, 2, 2, 3, 0])
    switch = 0.4 if variant in SWITCHING else 0.0
    chosen = toy.list_triplets(labels, variant, switch, torch.Generator().manual_seed(2))
    unit = [(x / math.hypot(x, y), y / math.hypot(x, y)) for x, y in embeddings.tolist()]
    pull = [math.dist(unit[a], unit[p]) for a, p, _ in rows(chosen)]
    push = [max(0.0, 0.1 - math.dist(unit[a], unit[n])) for a, _, n in rows(chosen)]
    expected = sum(pull) / len(pull) + sum(push) / len(push)
    value = create("contrastive", margin=toy.MARGIN)(embeddings, labels, tuples=chosen)
    assert value.item() == pytest.approx(expected, abs=1e-6)
    assert sum(push) > 0
    assert (sum(pull) == 0) == (variant in ("push-only", "as-published"))


def test_the_smallest_angle_is_that_of_two_centers():
    draw = torch.Generator().manual_seed(0)
    points, labels = torch.randn(40, 2, generator=draw), torch.arange(40) % 5
    centers = [points[labels == c].double().mean(dim=0).tolist() for c in range(5)]
    directions = [math.degrees(math.atan2(y, x)) for x, y in centers]
    between = [abs((a - b + 180) % 360 - 180) for a, b in combinations(directions, 2)]
    assert toy.compute_smallest_angle(points, labels) == pytest.approx(min(between), abs=1e-4)


def test_a_seed_decides_everything_and_nothing_else_is_touched(monkeypatch):
    monkeypatch.setattr(toy, "STEPS", 3)
    before = torch.get_rng_state()
    together = toy.run_toy("switch", 0.4, seeds=[0, 1])
    assert torch.equal(torch.get_rng_state(), before)
    alone = toy.run_toy("switch", 0.4, seeds=[1])
    assert alone.results[0] == together.results[1]
    assert together.results[0] != together.results[1]
    for name, key in (("second_value", "second singular value"), ("recall", "recall@1")):
        assert together.medians[key] == pytest.approx(sum(getattr(o, name) for o in together.results) / 2)


def test_the_net_has_two_hidden_layers_of_thirty():
    shapes = [tuple(layer.weight.shape) for layer in toy.build_network(0) if hasattr(layer, "weight")]
    assert shapes == [(30, 2), (30, 30), (2, 30)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"variant": "as-publishd"}, "did you mean 'as-published'"),
        ({"data": "diagonl"}, "did you mean 'diagonal'"),
        ({"variant": "switch", "switch": 1.5}, "probability"),
        ({"variant": "plain", "switch": 0.1}, "switches nothing"),
        ({"seeds": []}, "at least one seed"),
    ],
)
def test_invalid_arguments_are_errors(arguments, message):
    with pytest.raises(ValueError, match=message):
        toy.run_toy(**arguments)


@pytest.mark.parametrize("name", ["revisiting/toy-diagonal", "revisiting/toy-vertical"])
def test_every_row_of_the_tables_can_be_run(name, monkeypatch):
    monkeypatch.setattr(toy, "STEPS", 1)
    table = published.load_table(name)
    for row in table.rows:
        results = toy.run_toy(**row.settings("toy")["toy"], seeds=[0])
        assert list(results.medians) == list(table.metrics)


@pytest.mark.slow
def test_on_the_diagonal_the_missing_pull_and_not_the_switch_spreads_the_space():
    # an independent implementation came, over 40 seeds, to 0.10, 0.45, 0.41, 0.10 and 0.13; 1.0, 4.4, 4.8, 1.3 and 1.3
    # degrees; recall 0.81, 0.75, 0.76, 0.82 and 0.76, whose quartile ranges overlap everywhere
    plain, published, push_only, switch, miner_rule = (
        toy.run_toy(variant, share, seeds=range(20)).medians
        for variant, share in (
            ("plain", None),
            ("as-published", 0.001),
            ("push-only", None),
            ("switch", 0.4),
            ("miner-rule", 0.4),
        )
    )
    value, angle = "second singular value", "smallest angle"
    assert plain[value] == pytest.approx(0.10, abs=0.03)
    assert switch[value] == pytest.approx(0.10, abs=0.03)
    assert miner_rule[value] == pytest.approx(0.13, abs=0.05)
    assert published[value] == pytest.approx(0.45, abs=0.07)
    assert push_only[value] == pytest.approx(0.41, abs=0.07)
    for pulled in (plain, switch, miner_rule):
        assert pulled[angle] < 2.5
    for pushed in (published, push_only):
        assert 2.5 < pushed[angle] < 9.0
    for result, expected in ((plain, 0.81), (published, 0.75), (push_only, 0.76), (switch, 0.82), (miner_rule, 0.76)):
        assert result["recall@1"] == pytest.approx(expected, abs=0.1)


@pytest.mark.slow
def test_on_vertical_lines_the_test_classes_fall_onto_one_point_unless_the_pull_is_missing():
    plain, published = (
        toy.run_toy(variant, seeds=range(12), data="vertical").medians for variant in ("plain", "as-published")
    )
    assert plain["smallest angle"] < 0.5
    assert published["smallest angle"] > 1.0
    assert published["second singular value"] > plain["second singular value"] + 0.1
