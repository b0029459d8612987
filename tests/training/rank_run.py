"""What each rank of tests/training/test_ranks.py runs, under torchrun with gloo.

Every rank takes its part of a batch through a step, takes the whole batch through the same step alone, and writes down
by how much the gradients differ, relative to the largest entry. Then all ranks train together.
"""

import json
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

import kinfold
from kinfold.data import Batch
from kinfold.data.label_table import LabelTable
from kinfold.distributed import World
from kinfold.embedding.compute import compute_embeddings
from kinfold.losses import Mined
from kinfold.pairs import CrossBatchMemory
from kinfold.training import Objective, Step, Stopped, train
from kinfold.training.config.settings import MixupConfig
from tests import torchrun
from tests.problems import LOSSES, NUM_CLASSES, make
from tests.training.tiny import dataset, recipe

DIM = 7
# `sampled-triplets` reads triplets from the order of a batch, which has none here
MINERS = [name for name in kinfold.list("miners") if name != "sampled-triplets"]
PARTS = {2: ([7, 5], [11, 1]), 3: ([5, 4, 3], [1, 10, 1])}


def source(seed):
    return torch.Generator().manual_seed(seed)


def whole_batch(seed=0, dtype=torch.float64, size=12):
    g = source(seed)
    labels = torch.arange(size) % 4
    features = torch.randn(NUM_CLASSES, 9, generator=g, dtype=torch.float64)[labels]
    features = features + torch.randn(size, 9, generator=g, dtype=torch.float64)
    order = torch.randperm(size, generator=g)
    return Batch(features[order].to(dtype), labels[order], 100 * seed + order)


def network(dtype=torch.float64):
    """Two layers with the same weights on every rank."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return nn.Sequential(nn.Linear(9, 8), nn.Tanh(), nn.Linear(8, DIM)).to(dtype)


def objectives():
    """Every loss as it comes, then with miners, memories and draws."""
    for name in LOSSES:
        yield name, lambda name=name: Objective(make(name, dim=DIM))
    for miner in MINERS:
        for classes in (None, NUM_CLASSES):
            loss = lambda classes=classes: make("margin", num_classes=classes)  # noqa: E731
            mined_loss = lambda miner=miner, loss=loss: Objective(Mined(loss(), kinfold.miners.create(miner)))  # noqa: E731
            yield f"margin, {classes or 'one'} beta, {miner}", mined_loss
    yield "switched", lambda: Objective(Mined(make("triplet"), kinfold.miners.create("random", switch=0.5)))
    yield "dro-kl, sampled", lambda: Objective(make("dro-kl", sample=20))
    yield "happier, levels", lambda: related(Objective(make("happier")))
    yield "supcon, tags", lambda: related(Objective(make("supcon")), "tags")
    yield (
        "contrastive, levels, memory",
        lambda: related(Objective(make("contrastive"), CrossBatchMemory(30), weight=0.7)),
    )
    yield "contrastive, memory", lambda: Objective(make("contrastive"), CrossBatchMemory(30), start=1, weight=0.7)
    mined = lambda: Mined(make("margin"), kinfold.miners.create("distance-weighted"))  # noqa: E731
    yield "margin, distance-weighted, memory", lambda: Objective(mined(), CrossBatchMemory(17))


def related(objective, kind="levels"):
    """The objective with levels or tags of the items 0 to 299, whose positions the batches name."""
    groups, classes = torch.arange(300) % 2, torch.arange(300) % 6
    if kind == "levels":
        objective.label_table = LabelTable("levels", torch.stack([groups, classes], dim=1))
    else:
        objective.label_table = LabelTable("tags", nn.functional.one_hot(classes, 6).bool())
    return objective


def part_of(batch, sizes, rank):
    rows = slice(sum(sizes[:rank]), sum(sizes[: rank + 1]))
    return Batch(*(values[rows] for values in batch))


def after_steps(step, optimizer, parts):
    """Losses, and the gradients of the last of some steps; the parameters move in between."""
    losses = []
    for number, (batch, sizes) in enumerate(parts):
        if number:
            optimizer.step()
        optimizer.zero_grad()
        losses.append(step(batch, number, sizes).loss)
    parameters = [*step.model.named_parameters(), *step.objective.named_parameters()]
    return losses, {name: p.grad.clone() for name, p in parameters if p.grad is not None}


def compare(make_objective, ranks, sizes, dtype=torch.float64, steps=2, **options):
    """Largest relative difference of losses and gradients between all ranks together and one that has everything."""
    outcomes = []
    batches = [whole_batch(seed, dtype, sum(sizes)) for seed in range(steps)]
    for world in (ranks, World()):
        model, objective = network(dtype), make_objective().to(dtype)
        step = Step(model, objective, seed=5, precision="float64" if dtype == torch.float64 else "float32", world=world)
        for name, value in options.items():
            setattr(step, name, value)
        local_batches = [(part_of(batch, sizes, world.rank) if world.size > 1 else batch) for batch in batches]
        optimizer = torch.optim.SGD([*model.parameters(), *objective.parameters()], lr=0.05)
        # the number of rows of each rank is passed in every second step
        step_sizes = [sizes if world.size > 1 and number % 2 == 0 else None for number in range(steps)]
        outcomes.append(after_steps(step, optimizer, [*zip(local_batches, step_sizes, strict=True)]))
    (together, gradients), (alone, expected) = outcomes
    assert gradients.keys() == expected.keys()
    size = max(float(g.abs().max()) for g in expected.values())
    differences = {name: float((gradients[name] - g).abs().max()) / size for name, g in expected.items()}
    loss = max(abs(a - b) / max(1.0, abs(b)) for a, b in zip(together, alone, strict=True))
    return {"loss": loss, "gradient": max(differences.values()), "size": size, "by name": differences}


class LocalGradientGather(World):
    """A common mistake: a plain gather in which only the local rows have a gradient."""

    def gather(self, rows, sizes=None):
        together = super().gather(rows.detach(), sizes)
        if not rows.requires_grad:
            return together
        start = sum(sizes[: self.rank])
        return torch.cat([together[:start], rows, together[start + rows.shape[0] :]])


def compare_mixup(ranks, sizes):
    """The gradient of a mixed batch of several ranks, and that of its definition in one process."""
    batch, gradients = whole_batch(size=sum(sizes)), {}
    draws = [
        kinfold.training.loop.mixup.draw_mix(MixupConfig(), size, kinfold.seeding.derive_generator(5, 0, 2))
        for size in sizes
    ]
    assert len({draw.share for draw in draws}) == 1
    partner = torch.cat([draw.partner + sum(sizes[:rank]) for rank, draw in enumerate(draws)])
    share = draws[0].share
    for method in ("ranks", "definition"):
        model, objective = network(), Objective(make("proxy-anchor", dim=DIM)).double()
        if method == "ranks":
            step = Step(model, objective, seed=5, precision="float64", world=ranks, mixing=MixupConfig())
            step(part_of(batch, sizes, ranks.rank), 0, sizes)
        else:
            embeddings = model(share * batch.images + (1 - share) * batch.images[partner])
            value = share * objective.loss(embeddings, batch.labels)
            (value + (1 - share) * objective.loss(embeddings, batch.labels[partner])).backward()
        gradients[method] = [p.grad for p in (*model.parameters(), *objective.parameters())]
    return max(float((a - b).abs().max()) for a, b in zip(gradients["ranks"], gradients["definition"], strict=True))


def run_micro_batches_with_batch_norm(ranks, sizes):
    """Whether ranks with unequal numbers of micro-batches end with the same gradient."""
    model = kinfold.models.synchronize_batch_norm(
        nn.Sequential(nn.Linear(9, 8), nn.BatchNorm1d(8), nn.Linear(8, DIM))
    ).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.linspace(-1, 1, parameter.numel(), dtype=torch.float64).view_as(parameter).sin())
    step = Step(model.eval(), Objective(make("contrastive")), precision="float64", world=ranks, micro_batch=4)
    step.model.train()
    loss = step(part_of(whole_batch(size=sum(sizes)), sizes, ranks.rank), 0, sizes).loss
    gradient = torch.cat([p.grad.flatten() for p in model.parameters()])
    everyone = [torch.empty_like(gradient) for _ in range(ranks.size)]
    dist.all_gather(everyone, gradient)
    return bool(all(torch.equal(gradient, other) for other in everyone)) and loss == loss


def few_items(ranks):
    """Whether two items are embedded alike by however many ranks."""
    data = dataset().where(torch.arange(180) < 2)
    model = nn.Linear(10, 3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(0.5)
    return bool(
        torch.allclose(compute_embeddings(model, data, world=ranks), compute_embeddings(model, data, world=World()))
    )


def stop_at(step):
    """A callback, which the first rank calls, that asks for a stop after a step."""

    def callback(event):
        if event.kind == "step" and event.step == step:
            signal.raise_signal(signal.SIGTERM)

    return callback


def steps(ranks):
    report = {"losses": {}}
    for sizes in PARTS[ranks.size]:
        for name, make_objective in objectives():
            report["losses"][f"{name} {sizes}"] = compare(make_objective, ranks, sizes)
    sizes = PARTS[ranks.size][0]
    simple = lambda: Objective(make("multi-similarity"))  # noqa: E731
    report["micro-batch"] = {f"{size}": compare(simple, ranks, sizes, micro_batch=size) for size in (1, 2, 4, 5)}
    report["float32"] = {name: compare(create, ranks, sizes, torch.float32) for name, create in objectives()}
    proxies = lambda: Objective(make("proxy-anchor", dim=DIM))  # noqa: E731
    report["local gradient"] = compare(proxies, LocalGradientGather(ranks.rank, ranks.size), sizes, steps=1)
    report["mixup"] = compare_mixup(ranks, sizes)
    report["batch norm in micro-batches"] = run_micro_batches_with_batch_norm(ranks, [5, *[4] * (ranks.size - 1)])
    report["few items"] = few_items(ranks)
    return report


if __name__ == "__main__":
    torchrun.join()
    torch.set_num_threads(1)
    here = World.current()
    out = Path(sys.argv[1])
    results = steps(here)
    gathered = [None] * here.size
    dist.all_gather_object(gathered, results)
    if here.is_first:
        (out / f"{here.size}.json").write_text(json.dumps(gathered))
    for name, changes in json.loads((out / "runs.json").read_text()).items():
        variant, stop = changes.pop("variant"), changes.pop("stop", None)
        folder, data = out / f"{name} on {here.size}", dataset(variant)
        try:
            train(recipe(variant, **changes), folder, dataset=data, callbacks=[stop_at(stop)])
        except Stopped:
            train(folder=folder, resume=True, dataset=data)
    dist.destroy_process_group()
