"""What every registered sampler must do."""

import copy
import pickle
import re

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import kinfold
from kinfold.samplers import Sampler
from tests.samplers.problems import (
    EMBEDDING_SAMPLERS,
    NAMES,
    PER_CLASS_SAMPLERS,
    POOL_SAMPLERS,
    embeddings_of,
    epoch_of,
    labels_of,
    make,
)

LABELS = labels_of([4, 3, 5, 6, 1, 2, 4, 4])
OPTIONS = {"batch_size": 8, "per_class": 2, "pool": 16, "candidates": 3}
every = pytest.mark.parametrize("name", NAMES)
needs_embeddings = pytest.mark.parametrize("name", EMBEDDING_SAMPLERS)
per_class = pytest.mark.parametrize("name", PER_CLASS_SAMPLERS)


def raises(*parts):
    return pytest.raises(ValueError, match=".*".join(re.escape(part) for part in parts))


@every
def test_batches_are_lists_of_indices_into_the_labels(name):
    sampler = make(name, LABELS, **OPTIONS)
    assert isinstance(sampler, Sampler)
    batches = list(sampler)
    assert len(batches) == len(sampler) >= 3
    assert all(type(index) is int and 0 <= index < len(LABELS) for batch in batches for index in batch)
    assert all(len(batch) == 8 for batch in batches)
    assert epoch_of(sampler, 0) == batches, "an epoch can be iterated again"


@every
def test_every_iteration_is_a_new_epoch(name):
    sampler = make(name, LABELS, **OPTIONS)
    epochs = [list(sampler) for _ in range(3)]
    assert epochs[0] != epochs[1] != epochs[2] != epochs[0]
    assert epochs == [epoch_of(make(name, LABELS, **OPTIONS), epoch) for epoch in range(3)]
    assert sampler.epoch == 2


@every
def test_an_iteration_that_is_left_early_is_an_epoch_too(name):
    sampler = make(name, LABELS, **OPTIONS)
    firsts = [next(iter(sampler)) for _ in range(3)]
    assert firsts == [epoch_of(make(name, LABELS, **OPTIONS), epoch)[0] for epoch in range(3)]


@every
def test_set_epoch_fixes_the_next_iteration_and_later_ones_count_on(name):
    sampler = make(name, LABELS, **OPTIONS)
    list(sampler)
    sampler.set_epoch(7)
    assert [list(sampler), list(sampler)] == [epoch_of(make(name, LABELS, **OPTIONS), epoch) for epoch in (7, 8)]


@every
def test_an_epoch_begins_with_its_first_batch_not_with_the_iterator(name):
    """Lightning creates the first iterator of a resumed training before it calls set_epoch."""
    sampler = make(name, LABELS, **OPTIONS)
    batches = iter(sampler)
    sampler.set_epoch(5)
    assert list(batches) == epoch_of(make(name, LABELS, **OPTIONS), 5)
    assert list(sampler) == epoch_of(make(name, LABELS, **OPTIONS), 6)


@every
def test_a_data_loader_takes_it(name):
    sampler = make(name, LABELS, **OPTIONS)
    data = TensorDataset(torch.arange(len(LABELS)), LABELS)
    loader = DataLoader(data, batch_sampler=sampler)
    assert len(loader) == len(sampler)
    epochs = [[index.tolist() for index, _ in loader] for _ in range(2)]
    assert epochs == [epoch_of(sampler, 0), epoch_of(sampler, 1)]


@every
@pytest.mark.parametrize("kind", ["strings", "negative", "array", "list", "int32"])
def test_labels_of_any_kind_give_the_same_batches(name, kind):
    labels = {
        "strings": [f"class {label}" for label in LABELS.tolist()],
        "negative": LABELS - 2**40,
        "array": np.asarray(LABELS),
        "list": LABELS.tolist(),
        "int32": LABELS.int(),
    }[kind]
    assert epoch_of(make(name, labels, **OPTIONS)) == epoch_of(make(name, LABELS, **OPTIONS))


@every
def test_the_global_random_state_is_neither_used_nor_changed(name):
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = epoch_of(make(name, LABELS, **OPTIONS))
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    np.random.seed(3)
    assert epoch_of(make(name, LABELS, **OPTIONS)) == first


def restore(sampler, name):
    """A new sampler with the state of this one, as if read from a file."""
    accepted = {key: value for key, value in OPTIONS.items() if key in type(sampler).__init__.__annotations__}
    other = kinfold.samplers.create(name, LABELS, **accepted)
    other.load_state_dict(pickle.loads(pickle.dumps(sampler.state_dict())))
    return other


@every
def test_the_state_of_an_unfinished_epoch_is_restored(name):
    sampler = make(name, LABELS, **OPTIONS)
    sampler.set_epoch(3)
    batches = iter(sampler)
    batches_so_far = [next(batches), next(batches)]
    sampler.update(torch.tensor([0, 5]), torch.ones(2, 3, dtype=torch.float64))
    other = restore(sampler, name)
    batches_so_far += list(batches)
    assert other.epoch == sampler.epoch == 3
    assert list(other) == batches_so_far, "the unfinished epoch keeps its batches, from the first one on"
    assert list(other) == list(sampler), "and the next one is the same too"


@every
def test_the_state_of_a_finished_epoch_continues_with_the_next(name):
    sampler = make(name, LABELS, **OPTIONS)
    sampler.set_epoch(3)
    batches = list(sampler)
    sampler.update(torch.tensor([0, 5]), torch.ones(2, 3, dtype=torch.float64))
    other, again = restore(sampler, name), restore(sampler, name)
    assert list(other) == list(sampler) == epoch_of(other, 4)
    again.set_epoch(3)
    assert list(again) == batches, "an epoch that a loader has read to its end before training can be repeated"


@every
def test_a_state_without_the_key_finished_is_of_an_unfinished_epoch(name):
    """kinfold 0.1.0 wrote such states."""
    sampler = make(name, LABELS, **OPTIONS)
    batches = epoch_of(sampler, 2)
    state = sampler.state_dict()
    del state["finished"]
    other = make(name, LABELS, **OPTIONS)
    other.load_state_dict(state)
    assert list(other) == batches


@every
def test_a_loaded_state_is_not_shared(name):
    sampler = make(name, LABELS, **OPTIONS)
    other = make(name, LABELS, **OPTIONS)
    other.load_state_dict(sampler.state_dict())
    other.update(torch.arange(len(LABELS)), torch.zeros(len(LABELS), 3, dtype=torch.float64))
    assert epoch_of(sampler, 1) == epoch_of(make(name, LABELS, **OPTIONS), 1)


@every
def test_samplers_can_be_copied_and_pickled(name):
    sampler = make(name, LABELS, **OPTIONS)
    sampler.set_epoch(2)
    assert list(copy.deepcopy(sampler)) == list(pickle.loads(pickle.dumps(sampler))) == list(sampler)


@every
def test_one_class_and_singletons(name):
    assert all(len(batch) == 2 for batch in epoch_of(make(name, [7, 7, 7, 7], batch_size=2, per_class=2, pool=4)))
    lonely = epoch_of(make(name, list(range(6)), batch_size=4, per_class=2, pool=4))
    assert {index for batch in lonely for index in batch} <= set(range(6))
    assert len(epoch_of(make(name, [1, 1], batch_size=2, per_class=1, pool=2, replacement="study"))) == 1


@every
def test_the_number_of_batches_can_be_set(name):
    assert len(epoch_of(make(name, LABELS, **OPTIONS, batches=11))) == 11


def process_group(monkeypatch, rank, world_size):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: rank)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: world_size)


@every
def test_the_rank_is_read_from_the_process_group_when_an_epoch_begins(name, monkeypatch):
    sampler = make(name, LABELS, **OPTIONS)  # created before the process group
    alone = make(name, LABELS, **OPTIONS, rank=0, world_size=1)
    assert (sampler.rank, sampler.world_size) == (0, 1)
    process_group(monkeypatch, 1, 2)
    assert (sampler.rank, sampler.world_size) == (1, 2)
    assert (alone.rank, alone.world_size) == (0, 1)
    assert [batch[4:] for batch in alone] == list(sampler)
    process_group(monkeypatch, 2, 4)
    assert [batch[4:6] for batch in alone] == list(sampler)


@every
def test_more_processes_than_items_of_a_batch_are_explained_when_an_epoch_begins(name, monkeypatch):
    sampler = make(name, LABELS, **OPTIONS)
    process_group(monkeypatch, 0, 9)
    with raises("batch_size=8", "9", "raise it"):
        next(iter(sampler))


def test_libraries_find_set_epoch_and_may_not_distribute_parts_of_batches(monkeypatch):
    """Lightning and accelerate look for `sampler`; who reads `drop_last` is about to distribute the batches."""
    sampler = make("spc", LABELS, **OPTIONS)
    assert sampler.sampler is sampler
    assert not hasattr(sampler, "drop_last")
    process_group(monkeypatch, 1, 2)
    with raises(
        "already gives each of the 2 processes its part", "rank=0, world_size=1", "use_distributed_sampler=False"
    ):
        sampler.drop_last  # noqa: B018
    assert not hasattr(make("spc", LABELS, **OPTIONS, rank=0, world_size=1), "drop_last")


@every
@pytest.mark.parametrize(
    ("invalid", "parts"),
    [
        ({"batch_size": 0}, ["batch_size", "at least", "0"]),
        ({"batch_size": 8.0}, ["batch_size", "integer", "8.0"]),
        ({"batch_size": True}, ["batch_size", "integer", "True"]),
        ({"batches": 0}, ["batches", "at least 1"]),
        ({"seed": -1}, ["seed", "at least 0", "-1"]),
        ({"rank": 0}, ["rank and world_size together"]),
        ({"rank": 2, "world_size": 2}, ["rank must be below world_size=2", "counted from 0"]),
        ({"rank": -1, "world_size": 2}, ["rank must be", "at least 0"]),
        ({"rank": 0, "world_size": 9}, ["batch_size=8", "9", "raise it"]),
    ],
)
def test_invalid_options_are_explained(name, invalid, parts):
    with raises(*parts):
        make(name, LABELS, **{**OPTIONS, **invalid})


@every
def test_invalid_labels_and_epochs_are_explained(name):
    with raises("labels are empty"):
        make(name, [], **OPTIONS)
    with raises("labels must be integers or strings"):
        make(name, torch.rand(8), **OPTIONS)
    with raises("epoch", "at least 0", "-1"):
        make(name, LABELS, **OPTIONS).set_epoch(-1)
    with raises("the state of this sampler has epoch"):
        make(name, LABELS, **OPTIONS).load_state_dict({"step": 1})


@every
def test_unknown_options_are_named(name):
    with raises(f"{name!r} has no option 'batchsize'", "batch_size"):
        kinfold.samplers.create(name, LABELS, batchsize=8)
    with raises("needs the option batch_size"):
        kinfold.samplers.create(name, LABELS)


@per_class
def test_per_class_must_divide_the_batch(name):
    with raises("per_class=3 does not divide batch_size=8", "batch_size=6 or 9"):
        make(name, LABELS, **{**OPTIONS, "per_class": 3})
    with raises("per_class=9 does not divide batch_size=8", "batch_size=9"):
        make(name, LABELS, **{**OPTIONS, "per_class": 9})


@per_class
def test_too_few_classes_are_explained(name):
    with raises("needs 9 classes, the labels have 8", "at most 16"):
        make(name, LABELS, **{**OPTIONS, "batch_size": 18, "pool": 20})
    with raises("needs 4 classes, the labels have 2 with at least 5 items", "at most 10", "replacement='study'"):
        make(name, LABELS, batch_size=20, per_class=5, replacement="never")
    with raises("replacement must be one of", "'always'"):
        make(name, LABELS, **OPTIONS, replacement="always")
    with raises("replacement", "did you mean 'never'"):
        make(name, LABELS, **OPTIONS, replacement="nver")


def test_random_and_spc_r_explain_invalid_options():
    with raises("batch_size=99 is more than the 29 items", "at most 29"):
        make("random", LABELS, batch_size=99)
    with raises("batch_size", "at least 2", "1"):
        make("spc-r", LABELS, batch_size=1)
    with raises("replacement must be one of 'when-needed', 'study'", "'never'"):
        make("spc-r", LABELS, batch_size=4, replacement="never")


@pytest.mark.parametrize("name", POOL_SAMPLERS)
def test_a_pool_smaller_than_the_batch_is_an_error(name):
    with raises("pool=4 is smaller than batch_size=8", "512"):
        make(name, LABELS, **{**OPTIONS, "pool": 4})


def test_invalid_numbers_of_samplers_that_need_embeddings():
    with raises("bins", "at least 1"):
        make("ddm", LABELS, **OPTIONS, bins=0)
    with raises("candidates", "at least 1"):
        make("frd", LABELS, **{**OPTIONS, "candidates": 0})
    with raises("soften", "[0, 1)", "1.5"):
        make("gc", LABELS, **OPTIONS, soften=1.5)


def bare(name, labels=LABELS):
    accepted = kinfold.registry.resolve("samplers", name).__init__.__annotations__
    return kinfold.samplers.create(name, labels, **{k: v for k, v in OPTIONS.items() if k in accepted})


@every
def test_samplers_say_whether_they_need_embeddings(name):
    sampler = bare(name)
    assert sampler.needs_embeddings == (not sampler.ready) == (name in EMBEDDING_SAMPLERS)
    make(name, LABELS, **OPTIONS).set_epoch(0)


@needs_embeddings
def test_batches_before_the_first_full_pass_are_an_error(name):
    sampler = bare(name)
    sampler.set_epoch(0)
    with raises("29 of 29 items are not known", "sampler.update(indices, embeddings)"):
        list(sampler)
    sampler.update(torch.arange(20), embeddings_of(20))
    with raises("9 of 29 items"):
        list(sampler)
    sampler.update(torch.arange(20, 29), embeddings_of(9))
    assert sampler.ready
    assert len(list(sampler)) == len(sampler)
    assert sampler.epoch == 0, "iterations that could not begin do not count"


@needs_embeddings
def test_batches_are_chosen_when_the_epoch_begins(name):
    sampler, still = (make(name, labels_of([6] * 12), batch_size=8, pool=24) for _ in range(2))
    batches = iter(sampler)
    batches_so_far = [next(batches)]
    sampler.update(torch.arange(72), embeddings_of(72, seed=9))
    assert batches_so_far + list(batches) == epoch_of(still, 0)
    assert list(sampler) != epoch_of(still, 1), "the next epoch uses the new embeddings"


@needs_embeddings
def test_invalid_updates_are_explained(name):
    sampler = make(name, LABELS, **OPTIONS)
    with raises("indices (B,) and embeddings (B, D)", "(2,)", "(3, 3)"):
        sampler.update(torch.arange(2), torch.zeros(3, 3))
    with raises("0..28", "29"):
        sampler.update(torch.tensor([29]), torch.zeros(1, 3))
    with raises("0..28", "-1"):
        sampler.update(torch.tensor([3, -1]), torch.zeros(2, 3))
    with raises("integers", "float"):
        sampler.update(torch.tensor([1.0]), torch.zeros(1, 3))
    with raises("finite"):
        sampler.update(torch.tensor([1]), torch.full((1, 3), torch.nan))
    with raises("holds 3 dimensions, got 4"):
        sampler.update(torch.tensor([1]), torch.zeros(1, 4))
    with raises("has 29 items, this one 5"):
        other = kinfold.samplers.create(name, [0, 0, 1, 1, 1], batch_size=2)
        other.load_state_dict({**sampler.state_dict(), "planned": None})
    next(iter(sampler))
    with raises(f"saved batches have shape ({len(sampler)}, 8)", "(5, 8)"):
        make(name, LABELS, **OPTIONS, batches=5).load_state_dict(sampler.state_dict())


@needs_embeddings
def test_the_last_embedding_of_a_repeated_item_counts_and_no_graph_is_kept(name):
    sampler = make(name, LABELS, **OPTIONS)
    rows = torch.arange(6.0, requires_grad=True).view(2, 3)
    sampler.update(torch.tensor([4, 4]), rows)
    table = sampler.bank.read_all()
    assert table[4].tolist() == [3.0, 4.0, 5.0]
    assert not table.requires_grad
    sampler.update(torch.tensor([], dtype=torch.int64), torch.zeros(0, 3))


@needs_embeddings
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_half_precision_embeddings_are_kept_in_float32(name, dtype):
    sampler = bare(name)
    sampler.update(torch.arange(len(LABELS)), embeddings_of(len(LABELS)).to(dtype))
    assert sampler.bank.read_all().dtype == torch.float32
    assert len(list(sampler)) == len(sampler)


@needs_embeddings
def test_collapsed_embeddings_still_give_batches(name):
    sampler = bare(name)
    sampler.update(torch.arange(len(LABELS)), torch.ones(len(LABELS), 3))
    assert len(list(sampler)) == len(sampler)
