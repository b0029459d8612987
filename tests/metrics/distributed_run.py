"""What each rank of tests/metrics/test_sharding.py runs, under torchrun with gloo."""

import json
import sys

import torch
import torch.distributed as dist

from kinfold.metrics import evaluate, query_curves, verify
from tests import torchrun
from tests.metrics.spaces import RETRIEVAL, make

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
]


def results(ranks):
    x, labels = make("clustered", n=900, d=16, classes=70)
    found = {"one set": evaluate(x, labels, metrics=METRICS, ranks=ranks)}
    found["gallery"] = evaluate(x[:300], labels[:300], x[300:], labels[300:], metrics=RETRIEVAL, ranks=ranks)
    found["tied"] = evaluate(*make("tied", n=200), metrics=RETRIEVAL, ranks=ranks)
    curve, by_query = verify(x, labels, ranks=ranks), query_curves(x, labels, ranks=ranks)
    found["curves"] = [curve.others.sum().item(), by_query.tar.sum().item(), by_query.roc_auc]
    return found


if __name__ == "__main__":
    torchrun.join()
    torch.set_num_threads(1)
    together, alone = results(None), results(False)
    gathered = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, together)
    if dist.get_rank() == 0:
        with open(sys.argv[1], "w") as out:
            json.dump({"ranks": gathered, "alone": alone}, out)
    dist.destroy_process_group()
