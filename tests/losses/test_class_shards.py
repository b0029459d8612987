"""Classes that are sharded over processes give the values, gradients and training of one process."""

import json

import pytest
import torch

from kinfold.distributed import World
from kinfold.files.state import read_state, write_state
from kinfold.losses.class_logits import TargetClasses
from tests import torchrun
from tests.losses.shard_run import LABELS, NAMES, OPTIONS, X, create
from tests.problems import generator


@pytest.fixture(scope="module", params=[2])
def launched(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    loss = create("softmax", generator=generator(8))
    write_state(folder / "one.safetensors", dict(loss.state_dict()))
    (folder / "one.json").write_text(json.dumps(loss(X, LABELS).item()))
    torchrun.run(request.param, "tests.losses.shard_run", folder, timeout=300)
    reports = json.loads((folder / "reports.json").read_text())
    assert len(reports) == request.param
    return reports, folder


@pytest.mark.slow
def test_values_gradients_and_training_are_those_of_one_process(launched):
    for report in launched[0]:
        assert len(report) == len(NAMES) * len(OPTIONS) + 1
        for name, differences in report.items():
            assert max(differences.values()) < 1e-10, (name, differences)


def test_a_state_written_by_several_processes_is_read_by_one(launched):
    folder = launched[1]
    loss = create("soft-triple")
    loss.load_state_dict(read_state(folder / "several.safetensors"))
    assert loss(X, LABELS).item() == pytest.approx(json.loads((folder / "several.json").read_text()), rel=1e-12)


def test_what_cannot_be_sharded_is_refused():
    loss = create("cosface")
    loss.shard_classes(World())
    torch.testing.assert_close(loss(X, LABELS), create("cosface")(X, LABELS))
    with pytest.raises(ValueError, match="sharded already"):
        loss.shard_classes(World())
    with pytest.raises(ValueError, match="takes labels, and no relation"):
        loss(X, relation=torch.zeros(len(X), 17, dtype=torch.bool))
    with pytest.raises(ValueError, match="cannot be sharded over 20 processes"):
        create("cosface").shard_classes(World(0, 20))


def test_a_process_without_classes_has_no_targets_to_split():
    """As for a rank whose shard holds none of the sampled classes."""
    nothing = torch.zeros(3, 1, dtype=torch.bool)
    targets = TargetClasses(torch.zeros(3, 1, dtype=torch.int64), ~nothing, nothing)
    assert [*targets.split([])] == []
    [(samples, columns)] = TargetClasses(targets.index, ~nothing).split([0])
    assert (samples.tolist(), columns.tolist()) == ([0, 1, 2], [0, 0, 0])
