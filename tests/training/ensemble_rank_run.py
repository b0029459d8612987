"""What each rank of tests/training/test_ensembles.py runs, under torchrun with gloo: steps, then a whole training."""

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from kinfold.distributed import World
from kinfold.training import Step, train
from tests import torchrun
from tests.training import ensembles, tiny
from tests.training.rank_run import PARTS, after_steps, part_of, whole_batch

LOSSES = [
    ("proxy-anchor", None),
    ("cosface", None),
    ("multi-similarity", None),
    ("triplet", "semihard"),
    ("margin", "distance-weighted"),
    ("quadruplet", None),
]


def compare(head, name, miner, ranks, sizes, **options):
    """Largest relative difference of losses, gradients and logged values: all ranks together, and one alone."""
    outcomes, logged = [], []
    batches = [whole_batch(seed, size=sum(sizes)) for seed in range(2)]
    for world in (ranks, World()):
        model = ensembles.Network(head).double()
        objective = ensembles.objective(model.head, name, miner).double()
        step = Step(model, objective, seed=5, precision="float64", world=world, **options)
        optimizer = torch.optim.SGD([*model.parameters(), *objective.parameters()], lr=0.05)
        several = world.size > 1
        local_batches = [(part_of(batch, sizes, world.rank) if several else batch) for batch in batches]
        outcomes.append(after_steps(step, optimizer, [(batch, sizes if several else None) for batch in local_batches]))
        logged.append({key: float(value) for key, value in objective.logged.items()})
    (together, gradients), (alone, expected) = outcomes
    assert gradients.keys() == expected.keys()
    size = max(float(gradient.abs().max()) for gradient in expected.values())
    differences = [float((gradients[key] - gradient).abs().max()) / size for key, gradient in expected.items()]
    losses = [abs(a - b) for a, b in zip(together, alone, strict=True)]
    values = [abs(logged[0][key] - value) for key, value in logged[1].items()]
    return {"size": size, "difference": max(*differences, *losses, *values), "logged": len(values)}


if __name__ == "__main__":
    torchrun.join()
    torch.set_num_threads(1)
    here = World.current()
    out = Path(sys.argv[1])
    results = {}
    for parts in PARTS[here.size]:
        for kind in ensembles.HEADS:
            for pair in LOSSES:
                results[f"{kind}, {pair}, {parts}"] = compare(kind, *pair, here, parts)
            results[f"{kind}, small parts, {parts}"] = compare(kind, *LOSSES[0], here, parts, micro_batch=2)
    gathered = [None] * here.size
    dist.all_gather_object(gathered, results)
    if here.is_first:
        (out / "steps.json").write_text(json.dumps(gathered))
    for run, changes in json.loads((out / "runs.json").read_text()).items():
        train(tiny.recipe(**changes), out / f"{run} on {here.size}", dataset=tiny.dataset())
    dist.destroy_process_group()
