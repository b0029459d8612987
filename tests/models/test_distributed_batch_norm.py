"""Batch norm over ranks: equal to one process that has all items, whatever each rank has of them."""

import json

import pytest
import torch
from torch import nn

from kinfold import models
from kinfold.models.distributed_batch_norm import DistributedBatchNorm
from tests import torchrun
from tests.models.problems import STEPS, gradients, networks, problem, run


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_give_what_one_process_gives(ranks, tmp_path):
    out = tmp_path / "sums.json"
    torchrun.run(ranks, "tests.models.distributed_run", out)
    results = json.loads(out.read_text())
    assert len(results) == ranks
    for on_rank in results:
        gaps = on_rank["gaps"]
        compared = {key.split(": ")[1] for key in gaps}
        assert {
            "outputs",
            "gradient of the images",
            "gradient of 1.weight",
            "1.running_var",
            "7.running_mean",
        } < compared
        assert {"1.num_batches_tracked", "in evaluation"} < compared
        assert max(gaps.values()) < 1e-12, max(gaps, key=gaps.get)
        assert "more than one value per channel over all ranks" in on_rank["refused"]
        kind, finite, mean = on_rank["half"]
        assert (kind, finite) == ("torch.bfloat16", True)
        assert mean == pytest.approx([0.1 * (ranks - 1) / 2, 100.0])


@pytest.mark.parametrize("name", networks())
def test_one_process_alone_gets_what_torch_gives_to_the_last_bit(name):
    plain, ours = networks()[name], models.synchronize_batch_norm(networks()[name])
    for step in range(STEPS):
        images, weights = problem(step)
        for one, other in zip(run(plain, images, weights), run(ours, images, weights), strict=True):
            assert torch.equal(one, other)
        assert all(torch.equal(value, gradients(ours)[key]) for key, value in gradients(plain).items())
        assert all(torch.equal(value, ours.state_dict()[key]) for key, value in plain.state_dict().items())
    images, _ = problem(0)
    assert torch.equal(plain.eval()(images), ours.eval()(images))


def test_parameters_keys_and_modes_stay_the_very_same():
    model = models.create("conv4", head="mlp", head_options={"batch_norm": True}, batch_norm="frozen")
    before = dict(model.named_parameters())
    keys, modes = [*model.state_dict()], [layer.training for layer in model.modules()]
    assert models.synchronize_batch_norm(model) is model
    assert [*model.state_dict()] == keys
    assert [layer.training for layer in model.modules()] == modes
    assert all(parameter is before[name] for name, parameter in model.named_parameters())
    replaced = [layer for layer in model.modules() if isinstance(layer, DistributedBatchNorm)]
    assert len(replaced) == 5
    assert not any(isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d) for layer in model.modules())
    models.synchronize_batch_norm(model)  # twice is once
    assert [layer for layer in model.modules() if isinstance(layer, DistributedBatchNorm)] == replaced


def test_a_layer_without_a_bias_and_a_layer_by_itself():
    layer = nn.BatchNorm2d(3)
    layer.register_parameter("bias", None)
    assert isinstance(models.synchronize_batch_norm(layer), DistributedBatchNorm)
    assert [*models.synchronize_batch_norm(layer).state_dict()] == [*layer.state_dict()]


class WithActivation(nn.BatchNorm2d):
    """As timm has it."""

    def forward(self, maps):
        return super().forward(maps).relu()


def test_a_layer_that_does_more_than_batch_norm_is_refused():
    with pytest.raises(ValueError, match="WithActivation is a variant of batch norm"):
        models.synchronize_batch_norm(nn.Sequential(WithActivation(3)))
