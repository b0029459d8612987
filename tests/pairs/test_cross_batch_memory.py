"""The memory of earlier batches: a ring, a reference set, and a state that survives."""

import io

import pytest
import torch

import kinfold
from kinfold.pairs import CrossBatchMemory
from tests.problems import batch, gradient

X, Y = batch(71, dtype=torch.float32)
IDS = torch.arange(len(X))


def filled(size, *counts, with_ids=True):
    memory, start = CrossBatchMemory(size), 0
    for count in counts:
        part = slice(start, start + count)
        memory.update(X[part], Y[part], IDS[part] if with_ids else None)
        start += count
    return memory


def test_it_holds_the_newest_entries():
    for counts in [(3,), (4, 4), (4, 4, 4), (5, 1, 6), (13,)]:
        memory, total = filled(6, *counts), sum(counts)
        held = memory.reference()
        assert len(memory) == min(6, total)
        assert sorted(held["ref_ids"].tolist()) == list(range(max(0, total - 6), total))
        torch.testing.assert_close(held["ref_embeddings"], X[held["ref_ids"]])
        assert torch.equal(held["ref_labels"], Y[held["ref_ids"]])


def test_it_serves_any_loss_and_own_entries_make_no_pair():
    memory = filled(50, len(X))
    loss = kinfold.losses.create("multi-similarity")
    against_memory, _ = gradient(loss, X, Y, ids=IDS, **memory.reference())
    torch.testing.assert_close(against_memory, loss(X, Y))


def test_without_ids():
    memory = filled(6, 4, 4, with_ids=False)
    assert memory.reference()["ref_ids"] is None
    with pytest.raises(ValueError, match="every update"):
        memory.update(X[:2], Y[:2], IDS[:2])


def test_the_state_goes_on_where_it_stopped():
    memory = filled(6, 4, 4)
    stream = io.BytesIO()
    torch.save(memory.state_dict(), stream)
    stream.seek(0)
    fresh = CrossBatchMemory(6)
    fresh.load_state_dict(torch.load(stream, weights_only=True))
    for ring in (memory, fresh):
        ring.update(X[8:11], Y[8:11], IDS[8:11])
    for key, value in memory.state_dict().items():
        assert torch.equal(value, fresh.state_dict()[key])
    with pytest.raises(RuntimeError, match="size mismatch"):
        CrossBatchMemory(7).load_state_dict(memory.state_dict())


def test_it_keeps_no_graph():
    memory = CrossBatchMemory(4, dim=7)
    memory.update(X[:3].clone().requires_grad_(), Y[:3])
    assert not memory.reference()["ref_embeddings"].requires_grad


def test_wrong_shapes_are_refused_and_nothing_is_lost():
    memory = filled(6, 4)
    before = {key: value.clone() for key, value in memory.state_dict().items()}
    with pytest.raises(ValueError, match="dimensions"):
        memory.update(X[:2, :3], Y[:2], IDS[:2])
    with pytest.raises(ValueError, match="one per row"):
        memory.update(X[:2], Y[:3], IDS[:2])
    assert all(torch.equal(before[key], value) for key, value in memory.state_dict().items())
    with pytest.raises(ValueError, match="at least 1"):
        CrossBatchMemory(0)
