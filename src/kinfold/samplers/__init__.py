"""Batch samplers: a number of items of each class, or the candidate batch that is most like a larger pool."""

from typing import Any

from kinfold import registry
from kinfold.pairs.labels import Labels
from kinfold.samplers.anchor_neighbor import AnchorNeighborSampler
from kinfold.samplers.ddm import DDMSampler
from kinfold.samplers.frd import FRDSampler
from kinfold.samplers.gc import GCSampler
from kinfold.samplers.hierarchical import HierarchicalSampler
from kinfold.samplers.random import RandomSampler
from kinfold.samplers.sampler import Sampler
from kinfold.samplers.smart_mining import SmartMiningSampler
from kinfold.samplers.spc import SPCSampler
from kinfold.samplers.spc_r import SPCRSampler

__all__ = [
    "AnchorNeighborSampler",
    "DDMSampler",
    "FRDSampler",
    "GCSampler",
    "HierarchicalSampler",
    "RandomSampler",
    "SPCRSampler",
    "SPCSampler",
    "Sampler",
    "SmartMiningSampler",
    "create",
]


def create(name: str, labels: Labels, **options: Any) -> Sampler:
    """Create a batch sampler by its registered name.

    Args:
        name: One of `kinfold.list("samplers")`.
        labels: Class of each item, (N,): integers or strings.
        **options: Options of the sampler, such as `batch_size=`, `per_class=` and `seed=`.

    Raises:
        ValueError: The name or an option is unknown, or the options do not fit the labels.

    Examples:
        >>> sampler = create("spc", [0, 0, 1, 1, 2, 2], batch_size=4, per_class=2, seed=0)
        >>> [len(batch) for batch in sampler]
        [4, 4]
    """
    sampler = registry.create("samplers", name, labels=labels, **options)
    assert isinstance(sampler, Sampler)
    return sampler
