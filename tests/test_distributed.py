"""The process group without torchrun: a single process, and clear errors."""

import pytest
import torch

from kinfold.distributed import ProcessGroup, World, resolve_rank


def test_without_a_process_group_there_is_a_single_process():
    assert World.current() == World.current(enabled=False) == World(rank=0, size=1)
    with ProcessGroup() as world:
        assert world == World()
        assert world.is_first


def test_a_process_group_that_is_required_and_missing_is_an_error():
    with pytest.raises(ValueError, match=r"no process group: call torch\.distributed\.init_process_group"):
        World.current(enabled=True)


def test_a_single_process_exchanges_nothing():
    rows = torch.arange(6.0).view(3, 2)
    world = World()
    assert world.gather(rows) is rows
    assert world.gather_integers([1, 2]) == [[1, 2]]
    result = rows.clone()
    world.merge_shares(result, torch.tensor([0]))
    world.sum_in_place(result)
    assert torch.equal(result, rows)


def test_shares_of_all_processes_are_all_rows():
    rows = torch.arange(10)
    shares = [World(rank, 3).take_share(rows) for rank in range(3)]
    assert [share.tolist() for share in shares] == [[0, 3, 6, 9], [1, 4, 7], [2, 5, 8]]


def test_process_rank_and_world_size_are_passed_together():
    assert resolve_rank(None, None) == (0, 1)
    assert resolve_rank(1, 2) == (1, 2)
    with pytest.raises(ValueError, match="together or neither"):
        resolve_rank(1, None)


def test_every_process_of_a_machine_takes_the_gpu_of_its_local_rank(monkeypatch):
    calls = []
    monkeypatch.setenv("WORLD_SIZE", "6")
    monkeypatch.setenv("LOCAL_RANK", "5")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "set_device", lambda index: calls.append(("device", index)))
    monkeypatch.setattr(torch.distributed, "init_process_group", lambda backend: calls.append(("group", backend)))
    monkeypatch.setattr(torch.distributed, "destroy_process_group", lambda: None)
    with ProcessGroup():
        assert calls == [("device", 1), ("group", "cpu:gloo,cuda:nccl")]
