"""What each rank of tests/losses/test_class_shards.py runs, under torchrun with gloo."""

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from kinfold.distributed import World
from kinfold.files.state import read_state, write_state
from kinfold.losses import update_rows
from tests import torchrun
from tests.problems import LOSSES, batch, generator, has_proxies, make

CLASSES = 17
X, CODES = batch(17, sizes=(5, 3, 4, 1))
LABELS = CODES * 5 + 1  # 1, 6, 11, 16
NAMES = [name for name in LOSSES if has_proxies(name)]
OPTIONS = [{}, {"reduction": "sum"}, {"class_share": 0.3}, {"class_share": 0.999}]


def create(name, **options):
    loss = make(name, num_classes=CLASSES, **options).double()
    if loss.bias is not None:
        loss.bias.data.normal_(generator=generator(3))
    return loss


def network():
    model = nn.Linear(7, 7).double()
    for number, parameter in enumerate(model.parameters()):
        parameter.data.normal_(generator=generator(number))
    return model


def train(loss, world, steps=3):
    """Values, weights of the network, and the state of the loss after some steps of this rank's part of the batch."""
    model = network()
    optimizer = update_rows(torch.optim.Adam([*model.parameters(), *loss.parameters()], lr=0.01))
    values = []
    for _ in range(steps):
        optimizer.zero_grad()
        value = loss(world.gather(model(X[world.rank :: world.size])), world.gather(LABELS[world.rank :: world.size]))
        value.backward()
        world.average_gradients([*model.parameters(), *loss.parameters()])
        optimizer.step()
        values.append(value.item())
    return {"values": torch.tensor(values, dtype=torch.float64), "model": model.weight.detach(), **loss.state_dict()}


def slopes(loss):
    x = X.clone().requires_grad_()
    (2.0 * loss(x, LABELS)).backward()
    dense = [p.grad.to_dense() if p.grad.is_sparse else p.grad for p in loss.parameters()]
    return x.grad, dense


def difference(a, b):
    return float((a - b).abs().max() / b.abs().max().clamp(min=1e-3)) if a.shape == b.shape else float("inf")


def compare(name, options, world):
    """By how much sharded classes differ from those of one process: gradients, and training."""
    whole, sharded = create(name, **options), create(name, **options)
    sharded.shard_classes()
    rows = sharded._shard.rows
    assert len(sharded.proxies) == rows.stop - rows.start < CLASSES
    by_whole, by_shard = slopes(whole), slopes(sharded)
    report = {"x": difference(by_shard[0], by_whole[0])}
    for number, (part, full) in enumerate(zip(by_shard[1], by_whole[1], strict=True)):
        report[f"parameter {number}"] = float((part - full[rows]).abs().max() / full.abs().max())
    # in the order of the ranks, as the gathered batch is
    order = torch.cat([torch.arange(len(X))[rank :: world.size] for rank in range(world.size)])
    sharded, alone = create(name, **options), create(name, **options)
    sharded.shard_classes()
    together = train(sharded, world)
    global X, LABELS
    kept, X, LABELS = (X, LABELS), X[order], LABELS[order]
    single = train(alone, World())
    X, LABELS = kept
    assert together.keys() == single.keys()
    for key, value in together.items():
        if key != "generator_state":
            report[key] = difference(value.double(), single[key].double())
    return report


if __name__ == "__main__":
    torchrun.join()
    torch.set_num_threads(1)
    here, folder = World.current(), Path(sys.argv[1])
    results = {f"{name} {options}": compare(name, options, here) for name in NAMES for options in OPTIONS}
    # a state that was written by one process is read by several, and the other way round
    reader = create("softmax")
    reader.shard_classes()
    reader.load_state_dict(read_state(folder / "one.safetensors"))
    results["read"] = {"value": abs(reader(X, LABELS).item() - json.loads((folder / "one.json").read_text()))}
    written = create("soft-triple", generator=generator(5))
    written.shard_classes()
    state, value = written.state_dict(), written(X, LABELS).item()
    if here.is_first:
        write_state(folder / "several.safetensors", dict(state))
        (folder / "several.json").write_text(json.dumps(value))
    everyone = [None] * here.size
    dist.all_gather_object(everyone, results)
    if here.is_first:
        (folder / "reports.json").write_text(json.dumps(everyone))
    dist.destroy_process_group()
