"""What each process of tests/metrics/test_evaluation_processes.py runs, under torchrun with gloo."""

import json
import sys

import torch
import torch.distributed as dist

from kinfold.distributed import World
from kinfold.metrics import evaluate, query_curves, verify
from tests import torchrun
from tests.metrics.embedding_sets import RETRIEVAL, make_embeddings

METRICS = [
    *RETRIEVAL,
    "nmi",
    "ami",
    "f1",
    "uniformity",
    "alignment",
    "rho@1",
    "roc-auc",
    "pr-auc",
    "eer",
    "tar@far=0.01",
    "threshold@far=0.01",
    "opis",
    "dir@far=0.1",
    "auroc-open",
]


def compute_results(world):
    x, labels = make_embeddings("clustered", n=900, d=16, classes=70)
    results = {"one set": evaluate(x, labels, metrics=METRICS, world=world)}
    results["gallery"] = evaluate(x[:300], labels[:300], x[300:], labels[300:], metrics=RETRIEVAL, world=world)
    known = labels[300:] > 9  # ten classes are not in the gallery
    results["open set"] = evaluate(
        x[:300],
        labels[:300],
        x[300:][known],
        labels[300:][known],
        metrics=["opis", "dir@far=0.1", "auroc-open"],
        world=world,
    )
    results["tied"] = evaluate(*make_embeddings("tied", n=200), metrics=RETRIEVAL, world=world)
    curve, by_query = verify(x, labels, world=world), query_curves(x, labels, world=world)
    results["curves"] = [curve.false_accepts.sum().item(), by_query.tar.sum().item(), by_query.roc_auc]
    return results


if __name__ == "__main__":
    torchrun.join()
    torch.set_num_threads(1)
    together, alone = compute_results(None), compute_results(World())
    gathered = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, together)
    if dist.get_rank() == 0:
        with open(sys.argv[1], "w") as out:
            json.dump({"processes": gathered, "alone": alone}, out)
    dist.destroy_process_group()
