"""The tree of classes and the margins of the hierarchical triplet loss, compared with loops over pairs of items."""

import itertools

import pytest
import torch
from torch.autograd import gradcheck

from kinfold.losses.class_hierarchy import ClassHierarchy
from kinfold.losses.hierarchical_triplet import HierarchicalTriplet
from kinfold.pairs.class_means import ClassMeans
from tests.problems import batch, close, generator

SIZES = (5, 3, 1, 4, 2, 6)


def squared(first, second):
    first, second = first / first.norm(), second / second.norm()
    return float(((first - second) ** 2).sum())


def spread_of(rows):
    pairs = [squared(rows[i], rows[j]) for i in range(len(rows)) for j in range(len(rows)) if i != j]
    return sum(pairs) / len(pairs) if pairs else 0.0


def naive_tree(x, y, levels, count):
    """Thresholds, spreads, and for every level the sets of classes that chains of near classes join."""
    spreads = [spread_of(x[y == c]) for c in range(count)]
    start = sum(spreads) / count
    thresholds = [start + level * (4 - start) / levels for level in range(levels + 1)]
    distance = {}
    for p, q in itertools.product(range(count), repeat=2):
        pairs = [squared(a, b) for a in x[y == p] for b in x[y == q]]
        distance[p, q] = sum(pairs) / len(pairs)
    trees = []
    for threshold in thresholds:
        sets = [{c} for c in range(count)]
        for p, q in itertools.combinations(range(count), 2):
            if distance[p, q] < threshold:
                left, right = (next(s for s in sets if c in s) for c in (p, q))
                if left is not right:
                    sets.remove(right)
                    left |= right
        trees.append(sets)
    return thresholds, spreads, trees


def merge_threshold(p, q, thresholds, trees):
    for threshold, sets in zip(thresholds, trees, strict=True):
        if any(p in s and q in s for s in sets):
            return threshold
    return thresholds[-1]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("levels", [1, 4, 16])
def test_tree_equals_a_naive_one(seed, levels):
    x, y = batch(seed, sizes=SIZES)
    # a common direction: classes merge on many levels
    x = x + 2.0 * torch.randn(1, x.shape[1], generator=generator(9), dtype=x.dtype)
    tree = ClassHierarchy(len(SIZES), levels)
    tree.update(x, y)
    thresholds, spreads, trees = naive_tree(x, y, levels, len(SIZES))
    assert all(close(a, b) for a, b in zip(tree.thresholds.tolist(), thresholds, strict=True))
    assert all(close(a, b) for a, b in zip(tree.spreads.tolist(), spreads, strict=True))
    classes = torch.arange(len(SIZES))
    merged = tree.merge_thresholds(classes, classes)
    for p, q in itertools.product(range(len(SIZES)), repeat=2):
        assert close(float(merged[p, q]), merge_threshold(p, q, thresholds, trees))


@pytest.mark.parametrize("seed", range(3))
def test_loss_equals_a_naive_loop_with_a_margin_for_every_pair_of_classes(seed):
    x, y = batch(seed, sizes=SIZES)
    training, labels = batch(seed + 10, sizes=SIZES)
    loss = HierarchicalTriplet(num_classes=len(SIZES), beta=0.3, levels=8)
    loss.hierarchy.update(training, labels)
    thresholds, spreads, trees = naive_tree(training, labels, 8, len(SIZES))
    terms = []
    for a, p, n in itertools.product(range(len(y)), repeat=3):
        if a != p and y[a] == y[p] and y[a] != y[n]:
            margin = 0.3 + merge_threshold(int(y[a]), int(y[n]), thresholds, trees) - spreads[int(y[a])]
            terms.append(max(0.0, squared(x[a], x[p]) - squared(x[a], x[n]) + margin))
    assert close(loss(x, y).item(), sum(terms) / len(terms))
    # the first anchors against the others as a reference set: labels of both sides are used
    whole = HierarchicalTriplet(num_classes=len(SIZES), beta=0.3, levels=8, reduction="none")
    whole.load_state_dict(loss.state_dict())
    items = torch.arange(len(y))
    part = whole(x[:5], y[:5], ref_embeddings=x, ref_labels=y, ids=items[:5], ref_ids=items)
    torch.testing.assert_close(part, whole(x, y)[:5])


def test_gradient_with_a_tree():
    x, y = batch(11, dim=4, sizes=(4, 2, 1, 3))
    loss = HierarchicalTriplet(num_classes=4)
    loss.hierarchy.update(x, y)
    assert gradcheck(lambda e: loss(e, y), (x.requires_grad_(),), eps=1e-7, atol=1e-6, rtol=1e-4)


def test_a_copy_of_the_state_has_the_same_tree():
    x, y = batch(1, sizes=SIZES)
    loss, twin = HierarchicalTriplet(num_classes=6), HierarchicalTriplet(num_classes=6)
    plain = loss(x, y).item()
    loss.hierarchy.update(x, y)
    assert loss(x, y).item() != plain
    twin.load_state_dict(loss.state_dict())
    assert twin(x, y).item() == loss(x, y).item()


def test_the_tree_is_due_before_the_first_epoch_and_every_so_many():
    tree = ClassHierarchy(2, every=3)
    assert [tree.is_due(epoch) for epoch in range(4)] == [True] * 4
    tree.update(torch.eye(4), torch.arange(4) // 2)
    assert [tree.is_due(epoch) for epoch in range(4)] == [True, False, False, True]


def test_wrong_input():
    for options in ({"num_classes": 0}, {"num_classes": 2, "levels": 0}, {"num_classes": 2, "every": 0}):
        with pytest.raises(ValueError, match="at least 1"):
            HierarchicalTriplet(**options)
    loss = HierarchicalTriplet(num_classes=2)
    with pytest.raises(ValueError, match="reindex"):
        loss.hierarchy.update(torch.eye(3), torch.tensor([0, 1, 2]))
    with pytest.raises(ValueError, match="reindex"):
        loss(torch.eye(3), torch.tensor([0, 0, 2]))
    with pytest.raises(ValueError, match="pass labels"):
        loss(torch.eye(3), relation=torch.eye(3) > 0)


def test_means_of_classes_that_have_no_items():
    means = ClassMeans.from_embeddings(torch.eye(2), torch.tensor([0, 2]), 3)
    assert means.counts.tolist() == [1, 0, 1]
    assert means.measure_spreads().tolist() == [0, 0, 0]
