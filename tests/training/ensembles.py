"""Small ensembles with their objectives, the same in every process."""

import torch
from torch import nn

import kinfold
from kinfold.losses import Mined
from kinfold.models.independent import IndependentHeads
from kinfold.models.relational import RelationalHead
from kinfold.training.loop.ensemble_objective import EnsembleObjective
from tests.problems import make

WIDTH, HIDDEN, DIM = 9, 12, 6
HEADS = {
    "relational": lambda: RelationalHead(HIDDEN, DIM, 3, representation_weight=2.0, reconstruction_weight=0.5),
    "full": lambda: RelationalHead(HIDDEN, DIM, 2, "full"),
    "independent": lambda: IndependentHeads(HIDDEN, DIM, 3, representation_weight=0.5, decorrelation_weight=3.0),
}
# what makes an ensemble of a tiny run
RELATIONAL = {"model": {"head": "relational", "head_options": {"branches": 2, "representation_weight": 2.0}}}
INDEPENDENT = {"model": {"head": "independent", "head_options": {"branches": 3}}}


class Network(nn.Module):
    """A trunk of one layer below a head."""

    def __init__(self, head: str) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(3)
            self.trunk = nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.Tanh())
            self.head = HEADS[head]()
            for name, parameter in self.head.named_parameters():  # beyond the start, where relations count for nothing
                # poor decoders differ little, so that every branch wins some items
                nn.init.normal_(parameter, std=0.05 if name.startswith("decoders") else 0.7)

    def forward(self, rows):
        return self.head(self.trunk(rows))


def loss(name, dim, miner=None, **options):
    base_loss = make(name, dim=dim, **options)
    return base_loss if miner is None else Mined(base_loss, kinfold.miners.create(miner))


def objective(head, name, miner=None, **options):
    parts = [loss(name, head.part_dim, miner, **options) for _ in range(head.parts)]
    return EnsembleObjective(head, loss(name, DIM, miner, **options), parts)
