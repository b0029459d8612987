"""Networks with batch norm in all its settings, and batches that ranks share unequally."""

import torch
from torch import nn

STEPS = 3
ITEMS = 9


def networks():
    """Name -> network, the same in every process; float64."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        networks_by_name = {
            "plain": _network(lambda width: nn.BatchNorm2d(width)),
            "cumulative average": _network(lambda width: nn.BatchNorm2d(width, momentum=None)),
            "no scale": _network(lambda width: nn.BatchNorm2d(width, affine=False, eps=0.1, momentum=0.7)),
            "no statistics": _network(lambda width: nn.BatchNorm2d(width, track_running_stats=False)),
        }
        for network in networks_by_name.values():
            for parameter in network.parameters():
                nn.init.normal_(parameter)
    return networks_by_name


def _network(norm):
    convolved = [nn.Conv2d(2, 4, 3), norm(4), nn.Tanh(), nn.Conv2d(4, 3, 3, stride=2), norm(3), nn.Flatten()]
    return nn.Sequential(*convolved, nn.Linear(12, 5), nn.BatchNorm1d(5)).double()


def problem(step):
    """Images with a large mean, which sums of squares would not survive, and what their embeddings are weighted by."""
    generator = torch.Generator().manual_seed(step)
    images = torch.randn(ITEMS, 2, 7, 7, generator=generator, dtype=torch.float64) + 30
    return images, torch.randn(ITEMS, 5, generator=generator, dtype=torch.float64)


def sizes(ranks, step):
    """How many items each rank has; in the last step one of three has none."""
    if ranks == 2:
        return [(5, 4), (1, 8), (7, 2)][step]
    return [(3, 3, 3), (1, 6, 2), (4, 0, 5)][step]


def run(network, images, weights):
    """Embeddings and the gradient of their weighted sum by the images; parameters have theirs afterwards."""
    network.train()
    network.zero_grad()
    images = images.clone().requires_grad_()
    embeddings = network(images)
    (embeddings.sin() * weights).sum().backward()
    return embeddings.detach(), images.grad


def gradients(network):
    return {name: parameter.grad.clone() for name, parameter in network.named_parameters()}
