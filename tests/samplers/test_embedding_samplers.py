"""What the samplers that need embeddings choose, compared with slow references from their definitions."""

import numpy as np
import pytest
import scipy.linalg
import scipy.spatial.distance
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kinfold.samplers.class_turns import ClassTurns
from kinfold.samplers.ddm import compute_distribution_distances
from kinfold.samplers.frd import compute_frechet_distances
from kinfold.samplers.gc import select_centers
from kinfold.samplers.pool import draw_pool, draw_study_pool
from kinfold.seeding import derive_batch_generator as batch_generator
from tests.problems import generator
from tests.samplers.problems import embeddings_of, epoch_of, labels_of, make

EASY = settings(deadline=None, max_examples=25)
LABELS = labels_of([4, 7, 2, 1, 9, 5, 3, 6])


def wasserstein(points, rows, bins):
    """scipy's distance between the histograms, with bin centers as values and heights as weights."""
    pool, some = (scipy.spatial.distance.pdist(x) for x in (points, points[rows]))
    edges = np.linspace(pool.min(), pool.max(), bins + 1)
    middle = (edges[1:] + edges[:-1]) / 2
    heights = [np.histogram(np.clip(x, edges[0], edges[-1]), edges)[0] for x in (pool, some)]
    return scipy.stats.wasserstein_distance(middle, middle, *heights)


def frechet(points, rows):
    a, b = points, points[rows]
    s, t = (np.atleast_2d(np.cov(x, rowvar=False)) for x in (a, b))
    root = scipy.linalg.sqrtm(s @ t + 1e-12 * np.eye(len(s))).real
    return ((a.mean(0) - b.mean(0)) ** 2).sum() + np.trace(s + t - 2 * root)


def select_centers_naively(points, count, first, classes=None, due=None):
    """k-center greedy by two loops; each class once, due rows first."""
    chosen = [first]
    while len(chosen) < count:
        free = [i for i in range(len(points)) if i not in chosen]
        if classes is not None:
            free = [i for i in free if classes[i] not in {classes[j] for j in chosen}]
        if due is not None:
            free = [i for i in free if due[i]] or free
        chosen.append(max(free, key=lambda i: min(((points[i] - points[j]) ** 2).sum() for j in chosen)))
    return chosen


def redraw(sampler, epoch):
    """The pools and candidates of an epoch, each with the batch that the sampler took."""
    turns = ClassTurns(len(sampler.classes))
    table = sampler.bank.read_all()
    for number, batch in enumerate(epoch_of(sampler, epoch)):
        pool, candidates = sampler.matcher.draw(
            sampler.classes, turns.due, batch_generator(sampler.seed, epoch, number)
        )
        listed = pool.items[candidates].tolist()
        assert batch in listed
        chosen = candidates[listed.index(batch)]
        turns.mark_used(pool.class_of[chosen])
        yield table[pool.items].numpy(), candidates.numpy(), listed.index(batch)


@pytest.mark.parametrize("replacement", ["when-needed", "study"])
@EASY
@given(st.integers(0, 10**6), st.integers(0, 3), st.sampled_from([5, 50]))
def test_ddm_takes_the_candidate_with_the_smallest_wasserstein_distance(replacement, seed, epoch, bins):
    options = {"batch_size": 6, "per_class": 2, "pool": 14, "candidates": 6, "bins": bins, "seed": seed}
    sampler = make("ddm", LABELS, **options, replacement=replacement)
    for points, candidates, chosen in redraw(sampler, epoch):
        expected = [wasserstein(points, rows, bins) for rows in candidates]
        computed = compute_distribution_distances(torch.from_numpy(points), torch.from_numpy(candidates), bins).tolist()
        assert computed == pytest.approx(expected, abs=1e-9)
        assert expected[chosen] == pytest.approx(min(expected), abs=1e-9)


@pytest.mark.parametrize("replacement", ["when-needed", "study"])
@EASY
@given(st.integers(0, 10**6), st.integers(0, 3), st.sampled_from([1, 3, 9]))
def test_frd_takes_the_candidate_with_the_smallest_frechet_distance(replacement, seed, epoch, dim):
    options = {"batch_size": 6, "per_class": 2, "pool": 14, "candidates": 6, "seed": seed, "dim": dim}
    sampler = make("frd", LABELS, **options, replacement=replacement)
    for points, candidates, chosen in redraw(sampler, epoch):
        expected = [frechet(points, rows) for rows in candidates]
        computed = compute_frechet_distances(torch.from_numpy(points), torch.from_numpy(candidates)).tolist()
        assert computed == pytest.approx(expected, abs=2e-4)  # scipy's root of a singular matrix is good to 1e-5 or so
        assert expected[chosen] == pytest.approx(min(expected), abs=4e-4)


def test_the_frechet_distance_of_one_dimension_is_that_of_two_normal_distributions():
    points = embeddings_of(20, 1)
    rows = torch.tensor([[1, 5, 6, 9]])
    some = points[rows[0]]
    expected = (points.mean() - some.mean()) ** 2 + (points.std() - some.std()) ** 2
    assert compute_frechet_distances(points, rows).item() == pytest.approx(expected.item(), abs=1e-12)


def test_a_batch_that_is_its_pool_has_no_distance_to_it():
    points, everything = embeddings_of(12, 5), torch.arange(12)[None]
    assert compute_distribution_distances(points, everything, 50).item() == 0.0
    assert compute_frechet_distances(points, everything).item() == pytest.approx(0.0, abs=1e-7)


def test_the_positions_of_the_bins_matter():
    """Two candidates with one distance each have the same bin heights; the one at the pool's end costs more."""
    line = torch.tensor([[0.0], [1.0], [2.0], [3.0], [10.0]], dtype=torch.float64)
    near, far = compute_distribution_distances(line, torch.tensor([[0, 1], [0, 4]]), 5).tolist()
    assert [near, far] == pytest.approx([wasserstein(line.numpy(), rows, 5) for rows in ([0, 1], [0, 4])])
    assert far > near + 1


@pytest.mark.parametrize("points", [torch.zeros(6, 2), torch.ones(1, 2)], ids=["coincident", "single"])
def test_pools_without_spread_have_distance_zero(points):
    rows = torch.zeros(3, 2, dtype=torch.int64)
    assert compute_distribution_distances(points, rows, 50).tolist() == [0.0] * 3
    assert compute_frechet_distances(points, rows).tolist() == [0.0] * 3


def test_moments_add_the_published_terms():
    sampler = make("ddm", LABELS, batch_size=6, per_class=2, pool=14, moments=True)
    points, rows = embeddings_of(14), torch.arange(12).view(2, 6)
    expected = []
    for row in rows:
        some = points[row].numpy()
        mean = np.linalg.norm(points.numpy().mean(0) - some.mean(0))
        deviation = np.linalg.norm(points.numpy().std(0) - some.std(0))
        expected.append(mean + deviation + 150 * wasserstein(points.numpy(), row.numpy(), 50))
    assert sampler.compute_cost(points, rows).tolist() == pytest.approx(expected)


@EASY
@given(st.integers(0, 10**6), st.integers(1, 12))
def test_centers_are_those_of_a_naive_greedy_search(seed, count):
    points = embeddings_of(12, 2, seed)
    computed = select_centers(points, count, generator(seed)).tolist()
    assert computed == select_centers_naively(points.numpy(), count, computed[0])


@pytest.mark.parametrize("replacement", ["when-needed", "study"])
@EASY
@given(st.integers(0, 10**6), st.integers(0, 3))
def test_gc_takes_the_centers_of_a_naive_greedy_search_and_positives_of_their_class(replacement, seed, epoch):
    sampler = make("gc", LABELS, batch_size=10, per_class=2, pool=14, seed=seed, replacement=replacement)
    turns, study = ClassTurns(8), replacement == "study"
    for number, batch in enumerate(epoch_of(sampler, epoch)):
        source = batch_generator(seed, epoch, number)
        if study:
            pool = draw_study_pool(sampler.classes, 14, 1, source)
        else:
            pool = draw_pool(sampler.classes, 14, 1, turns.due, source)
        items, classes = pool.items.tolist(), pool.class_of.tolist()
        points = sampler.bank.read_all()[pool.items].numpy()
        extra = {} if study else {"classes": classes, "due": turns.due[pool.class_of].tolist()}
        first = [row for row, item in enumerate(items) if item == batch[0]]
        expected = [[items[row] for row in select_centers_naively(points, 5, start, **extra)] for start in first]
        assert batch[::2] in expected
        assert LABELS[batch[::2]].tolist() == LABELS[batch[1::2]].tolist()
        turns.mark_used(torch.tensor([classes[items.index(item)] for item in batch[::2]]))


def test_the_first_center_is_random_and_softened_ones_are_among_the_farthest():
    line = torch.arange(10, dtype=torch.float64)[:, None]
    source = generator(0)
    assert {int(select_centers(line, 1, source)[0]) for _ in range(200)} == set(range(10))
    due = torch.arange(10) == 0
    selected = {int(select_centers(line, 2, source, due=due, farthest=3)[1]) for _ in range(100)}
    assert selected == {7, 8, 9}
    sampler = make("gc", LABELS, batch_size=10, per_class=2, pool=20, soften=0.2)
    assert all(len(set(batch)) >= 9 for batch in epoch_of(sampler))


@EASY
@given(st.lists(st.integers(1, 7), min_size=2, max_size=9), st.integers(1, 3), st.integers(3, 40), st.integers(0, 999))
def test_a_pool_holds_distinct_items_and_all_due_classes(sizes, per_class, size, seed):
    sampler = make("spc", labels_of(sizes), batch_size=1, per_class=1)
    source = generator(seed)
    due = torch.rand(len(sizes), generator=source) < 0.5
    pool = draw_pool(sampler.classes, size, per_class, due, source)
    assert len(pool.items) == int(pool.counts.sum()) <= size
    assert sampler.classes.sizes[pool.classes].ge(per_class).logical_or(pool.counts == per_class).all()
    assert labels_of(sizes)[pool.items].tolist() == pool.class_of.tolist()
    waiting = set(due.nonzero().flatten().tolist()) - set(pool.classes.tolist())
    assert not waiting or bool(due[pool.classes].all())
    for label, count in zip(pool.classes.tolist(), pool.counts.tolist(), strict=True):
        assert len(pool.items[pool.class_of == label].unique()) == min(count, sizes[label])
