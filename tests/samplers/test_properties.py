"""Properties of the samplers: how often classes and items come, what never repeats, and the parts of processes."""

from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import kinfold
from kinfold.samplers.balanced_draws import draw_distinct, draw_in_turns, draw_with_replacement
from kinfold.samplers.class_turns import ClassTurns
from kinfold.seeding import derive_batch_generator as batch_generator
from tests.problems import generator
from tests.samplers.problems import NAMES, PER_CLASS_SAMPLERS, epoch_of, labels_of, make

EASY = settings(deadline=None, max_examples=40)
SIZES = st.lists(st.integers(1, 7), min_size=1, max_size=8)


def even(counts):
    return max(counts) - min(counts) <= 1


@st.composite
def per_class_problems(draw):
    """Class sizes and options of a sampler that takes per_class items of a class."""
    sizes = draw(SIZES)
    per_class = draw(st.integers(1, 4))
    groups = draw(st.integers(1, len(sizes)))
    seed, batches = draw(st.integers(0, 2**40)), draw(st.none() | st.integers(1, 9))
    return sizes, {"batch_size": groups * per_class, "per_class": per_class, "seed": seed, "batches": batches}


@EASY
@given(SIZES, st.lists(st.tuples(st.integers(0, 7), st.integers(1, 16)), min_size=1, max_size=12), st.integers(0, 999))
def test_draws_in_turns_are_even_over_a_group_and_within_a_visit(sizes, visits, seed):
    groups = [group % len(sizes) for group, _ in visits]
    counts = [count for _, count in visits]
    members = draw_in_turns(torch.tensor(sizes), torch.tensor(groups), torch.tensor(counts), generator(seed)).tolist()
    assert len(members) == sum(counts)
    totals = [Counter(dict.fromkeys(range(size), 0)) for size in sizes]
    for group, count in zip(groups, counts, strict=True):
        visit = Counter(dict.fromkeys(range(sizes[group]), 0))
        visit.update(members[:count])
        members = members[count:]
        assert set(visit) == set(range(sizes[group]))
        assert even(visit.values())
        totals[group].update(visit)
        assert even(totals[group].values())


def test_all_ordered_draws_from_a_group_are_equally_likely():
    visits = 30000
    members = draw_in_turns(
        torch.full((visits,), 4), torch.arange(visits), torch.full((visits,), 2), generator(3)
    ).view(-1, 2)
    ordered_pairs = torch.bincount(members[:, 0] * 4 + members[:, 1], minlength=16).view(4, 4)
    assert ordered_pairs.diagonal().sum() == 0
    off = ordered_pairs[~torch.eye(4, dtype=torch.bool)]
    assert (off / visits).tolist() == pytest.approx([1 / 12] * 12, abs=0.01)


@EASY
@given(st.lists(st.tuples(st.integers(1, 60), st.integers(1, 6)), min_size=1, max_size=9), st.integers(0, 999))
def test_draws_are_distinct_while_the_group_has_members(groups, seed):
    sizes, counts = (torch.tensor(column) for column in zip(*groups, strict=True))
    for drawn, (size, count) in zip(
        draw_distinct(sizes, counts, generator(seed)).split(counts.tolist()), groups, strict=True
    ):
        times = torch.bincount(drawn, minlength=size).tolist()
        assert len(drawn) == count
        assert len(times) == size
        assert even(times)


def test_all_sets_drawn_from_a_large_group_are_equally_likely():
    visits = 60000
    sizes, counts = torch.full((visits,), 17), torch.full((visits,), 2)
    low, high = draw_distinct(sizes, counts, generator(1)).view(-1, 2).sort(dim=1).values.unbind(dim=1)
    pairs = torch.bincount(low * 17 + high, minlength=289).view(17, 17)
    assert pairs.sum() == pairs.triu(1).sum() == visits
    expected = visits / 136
    assert float((pairs[pairs.triu(1) > 0] - expected).abs().max()) < 6 * expected**0.5
    assert int((pairs > 0).sum()) == 136


def test_uniform_draws_reach_every_number_equally():
    drawn = draw_with_replacement(torch.full((40000,), 5), generator(0))
    assert (torch.bincount(drawn) / 40000).tolist() == pytest.approx([0.2] * 5, abs=0.01)


@EASY
@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 999))
def test_turns_are_even_if_due_classes_come_first(classes, group, seed):
    turns, counts, source = ClassTurns(classes), torch.zeros(classes, dtype=torch.int64), generator(seed)
    group = min(group, classes)
    for _ in range(12):
        chosen = (torch.rand(classes, generator=source) - turns.due.float()).topk(group, largest=False).indices
        turns.mark_used(chosen)
        counts[chosen] += 1
        assert even(counts.tolist())


@pytest.mark.parametrize("name", PER_CLASS_SAMPLERS)
@EASY
@given(per_class_problems())
def test_a_batch_has_per_class_items_of_each_class_and_an_epoch_has_every_class(name, problem):
    sizes, options = problem
    labels = labels_of(sizes)
    sampler = make(name, labels, **options, pool=options["batch_size"] + 3, candidates=3)
    batches = epoch_of(sampler)
    per_class, groups = options["per_class"], options["batch_size"] // options["per_class"]
    enough = max(len(labels) // options["batch_size"], -(-len(sizes) // groups))
    assert len(batches) == len(sampler) == (options["batches"] or enough)
    turns = Counter(dict.fromkeys(range(len(sizes)), 0))
    for batch in batches:
        groups_of_labels = labels[torch.tensor(batch)].view(groups, per_class)
        assert bool((groups_of_labels == groups_of_labels[:, :1]).all())
        assert len(set(groups_of_labels[:, 0].tolist())) == groups
        turns.update(groups_of_labels[:, 0].tolist())
        for group in torch.tensor(batch).view(groups, per_class):
            size = sizes[int(labels[group[0]])]
            times = Counter(group.tolist())
            assert len(times) == min(size, per_class), "items are distinct while the class has others"
            assert even(times.values())
    assert even(turns.values()), "classes take turns"
    if options["batches"] is None:
        assert min(turns.values()) >= 1


@EASY
@given(per_class_problems())
def test_spc_shows_the_items_of_a_class_equally_often(problem):
    sizes, options = problem
    labels = labels_of(sizes)
    times = torch.bincount(torch.tensor(epoch_of(make("spc", labels, **options))).flatten(), minlength=len(labels))
    for label in range(len(sizes)):
        assert even(times[labels == label].tolist())


@pytest.mark.parametrize("name", PER_CLASS_SAMPLERS)
@EASY
@given(per_class_problems())
def test_never_repeats_nothing_and_leaves_small_classes_out(name, problem):
    sizes, options = problem
    sizes = [max(size, options["per_class"]) for size in sizes]
    small = list(range(1, options["per_class"]))
    labels = labels_of(sizes + small)
    sampler = make(name, labels, **options, replacement="never", pool=options["batch_size"], candidates=2)
    for batch in epoch_of(sampler):
        assert len(set(batch)) == len(batch)
        assert int(labels[torch.tensor(batch)].max()) < len(sizes)


@EASY
@given(st.lists(st.integers(1, 7), min_size=1, max_size=12), st.integers(2, 12), st.integers(0, 999))
def test_spc_r_draws_classes_evenly_and_the_last_item_has_a_positive(sizes, batch_size, seed):
    labels = labels_of(sizes)
    table = torch.tensor(epoch_of(make("spc-r", labels, batch_size=batch_size, seed=seed)))
    classes = labels[table]
    assert even(torch.bincount(classes[:, :-1].flatten(), minlength=len(sizes)).tolist())
    assert bool((classes[:, :-1] == classes[:, -1:]).any(dim=1).all())
    for row, row_classes in zip(table, classes, strict=True):
        for label in row_classes.unique().tolist():
            times = torch.bincount(row[row_classes == label], minlength=len(labels))[labels == label].tolist()
            assert even(times), "no item comes twice before its class has no other left"


def test_spc_r_with_many_singletons_repeats_no_item():
    labels = labels_of([1] * 60 + [2] * 30)
    for seed in range(10):
        for batch in epoch_of(make("spc-r", labels, batch_size=24, seed=seed)):
            assert len(set(batch)) == len(batch)


def test_spc_r_composes_batches_at_random():
    """The number of items of class 0 among the seven drawn follows the draw of a shuffled epoch."""
    labels = labels_of([40, 40])
    counts = torch.zeros(8)
    for seed in range(60):
        table = torch.tensor(epoch_of(make("spc-r", labels, batch_size=8, batches=50, seed=seed)))
        counts += torch.bincount((labels[table][:, :-1] == 0).sum(dim=1), minlength=8)
    expected = [c / 128 for c in (1, 7, 21, 35, 35, 21, 7, 1)]
    assert (counts / counts.sum()).tolist() == pytest.approx(expected, abs=0.025)


@EASY
@given(SIZES, st.integers(1, 20), st.integers(0, 999), st.none() | st.integers(1, 9))
def test_random_shows_all_items_equally_often_and_none_twice_in_a_batch(sizes, batch_size, seed, batches):
    labels = labels_of(sizes)
    batch_size = min(batch_size, len(labels))
    table = torch.tensor(epoch_of(make("random", labels, batch_size=batch_size, seed=seed, batches=batches)))
    assert even(torch.bincount(table.flatten(), minlength=len(labels)).tolist())
    assert all(len(set(batch)) == batch_size for batch in table.tolist())


@pytest.mark.parametrize("name", NAMES)
@EASY
@given(st.integers(0, 999), st.integers(0, 5), st.sampled_from([2, 3, 5]))
def test_the_parts_of_all_processes_are_the_batches_of_one_process(name, seed, epoch, world_size):
    labels = labels_of([3, 5, 2, 6, 1, 4])
    options = {"batch_size": 8, "per_class": 2, "seed": seed, "pool": 10, "candidates": 3, "bins": 5}
    batches = epoch_of(make(name, labels, **options), epoch)
    parts = [
        epoch_of(make(name, labels, **options, rank=rank, world_size=world_size), epoch) for rank in range(world_size)
    ]
    for batch, *shards in zip(batches, *parts, strict=True):
        assert [index for shard in shards for index in shard] == batch
        assert even([len(shard) for shard in shards])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("replacement", ["when-needed", "study"])
def test_epochs_and_seeds_differ_and_can_be_repeated(name, replacement):
    labels = labels_of([6] * 12)
    options = {"batch_size": 12, "per_class": 2, "pool": 20, "candidates": 3, "replacement": replacement}
    sampler = make(name, labels, seed=1, **options)
    epochs = [epoch_of(sampler, epoch) for epoch in (0, 1, 2)]
    assert epochs[0] != epochs[1] != epochs[2] != epochs[0]
    assert epoch_of(sampler, 1) == epochs[1]
    assert epoch_of(make(name, labels, seed=1, **options), 2) == epochs[2]
    assert epoch_of(make(name, labels, seed=2, **options), 1) not in epochs


@pytest.mark.parametrize("name", NAMES)
def test_the_batches_of_an_epoch_have_their_own_random_numbers(name):
    labels = labels_of([6] * 12)
    options = {"batch_size": 12, "per_class": 2, "pool": 20, "candidates": 3, "replacement": "study"}
    batches = epoch_of(make(name, labels, **options, batches=6))
    assert len({tuple(batch) for batch in batches}) == 6


def test_seed_epoch_and_batch_give_different_streams():
    keys = [(seed, epoch, batch) for seed in range(4) for epoch in range(4) for batch in (None, 0, 1, 2)]
    first = {float(torch.rand(1, generator=batch_generator(*key), dtype=torch.float64)) for key in keys}
    assert len(first) == len(keys)


def test_study_draws_classes_and_items_independently():
    """Of a class of two the study's SPC-2 shows one item twice in half of the draws."""
    labels = labels_of([2] * 4)
    table = torch.tensor(epoch_of(make("spc", labels, batch_size=8, per_class=2, batches=6000, replacement="study")))
    pairs = table.view(-1, 2)
    assert float((pairs[:, 0] == pairs[:, 1]).float().mean()) == pytest.approx(0.5, abs=0.02)
    first = labels[table[:, ::2]]
    assert float((first[:, 0] == first[:, 1]).float().mean()) == pytest.approx(0.25, abs=0.03)
    assert (torch.bincount(first.flatten()) / first.numel()).tolist() == pytest.approx([0.25] * 4, abs=0.02)
    assert (torch.bincount(table.flatten()) / table.numel()).tolist() == pytest.approx([0.125] * 8, abs=0.01)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "random"])
def test_study_works_with_fewer_classes_than_a_batch_needs(name):
    labels = labels_of([1, 3])
    options = {"batch_size": 12, "per_class": 2, "pool": 16, "candidates": 3, "replacement": "study"}
    for batch in epoch_of(make(name, labels, **options)):
        assert len(batch) == 12
        assert set(batch) <= set(range(4))


def test_the_last_item_of_the_study_variant_of_spc_r_has_a_positive():
    labels = labels_of([1] * 30 + [4] * 5)
    table = torch.tensor(epoch_of(make("spc-r", labels, batch_size=6, replacement="study", batches=500)))
    classes = labels[table]
    assert bool((classes[:, :-1] == classes[:, -1:]).any(dim=1).all())
    assert (torch.bincount(classes[:, :-1].flatten()) / 2500).tolist() == pytest.approx([1 / 35] * 35, abs=0.02)


def test_an_epoch_of_a_large_dataset_has_the_same_properties():
    """As many items and classes as Stanford Online Products."""
    sizes = torch.randint(2, 9, (11318,), generator=generator(0))
    labels = torch.arange(11318).repeat_interleave(sizes)
    sampler = kinfold.samplers.create("spc", labels, batch_size=112, per_class=2)
    table = torch.tensor(list(sampler))
    assert table.shape == (len(labels) // 112, 112)
    assert bool((table.sort(dim=1).values.diff(dim=1) > 0).all())
    turns = torch.bincount(labels[table[:, ::2]].flatten(), minlength=11318)
    assert int(turns.max() - turns.min()) <= 1
