"""What each process of tests/models/test_distributed_batch_norm.py runs, under torchrun with gloo."""

import json
import sys

import torch
import torch.distributed as dist
from torch import nn

from kinfold import models
from tests import torchrun
from tests.models.problems import STEPS, gradients, networks, problem, run, sizes


def shares(ranks):
    """What one rank of several does, step by step, against one process that has all items."""
    worst = {}
    rank = dist.get_rank()
    for name, network in networks().items():
        alone, together = network, models.synchronize_batch_norm(networks()[name])
        for step in range(STEPS):
            images, weights = problem(step)
            first = torch.tensor(sizes(ranks, step)[:rank]).sum().int().item()
            part = slice(first, first + sizes(ranks, step)[rank])
            expected = run(alone, images, weights)
            outputs = run(together, images[part], weights[part])
            alone_gradients, rank_gradients = gradients(alone), gradients(together)
            for gradient in rank_gradients.values():
                dist.all_reduce(gradient)
            pairs = {
                "outputs": (outputs[0], expected[0][part]),
                "gradient of the images": (outputs[1], expected[1][part]),
                **{f"gradient of {key}": (rank_gradients[key], value) for key, value in alone_gradients.items()},
                **{key: (together.state_dict()[key], value) for key, value in alone.state_dict().items()},
            }
            for key, (one, other) in pairs.items():
                gap = (one - other).abs().max().item() if one.numel() else 0.0
                scale = max(1.0, other.abs().max().item()) if other.numel() else 1.0
                worst[f"{name}: {key}"] = max(worst.get(f"{name}: {key}", 0.0), gap / scale)
        images, weights = problem(0)
        gap = together.eval()(images) - alone.eval()(images)
        worst[f"{name}: in evaluation"] = gap.abs().max().item()
    return worst


def refusals(ranks):
    """One value per channel over all ranks cannot be normalized, and every rank says so."""
    layer = models.synchronize_batch_norm(nn.BatchNorm1d(3))
    try:
        layer(torch.ones(1 if dist.get_rank() == 0 else 0, 3))
    except ValueError as problem:
        return str(problem)
    return ""


def half_precision(ranks):
    layer = models.synchronize_batch_norm(nn.BatchNorm1d(2))
    outputs = layer(torch.tensor([[float(dist.get_rank()), 1000.0]], dtype=torch.bfloat16))
    return [str(outputs.dtype), outputs.isfinite().all().item(), layer.running_mean.tolist()]


if __name__ == "__main__":
    torchrun.join()
    torch.set_num_threads(1)
    ranks = dist.get_world_size()
    gathered = [None] * ranks
    dist.all_gather_object(gathered, {"gaps": shares(ranks), "refused": refusals(ranks), "half": half_precision(ranks)})
    if dist.get_rank() == 0:
        with open(sys.argv[1], "w") as out:
            json.dump(gathered, out)
    dist.destroy_process_group()
