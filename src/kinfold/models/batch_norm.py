"""Frozen batch norm, in the two senses that papers use the term."""

from typing import Literal, get_args

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

BatchNorm = Literal["train", "frozen-statistics", "frozen"]


def check_batch_norm(mode: str) -> None:
    """Raise a ValueError unless `mode` is one of `BatchNorm`."""
    if mode not in get_args(BatchNorm):
        raise ValueError(
            f"unknown batch_norm {mode!r}; 'train' lets it learn, 'frozen-statistics' fixes the running statistics, "
            "'frozen' fixes scale and shift too"
        )


def list_batch_norms(network: nn.Module) -> list[nn.Module]:
    """Return the batch norm layers of a network in order, also those of `synchronize_batch_norm`."""
    return [layer for layer in network.modules() if isinstance(layer, _BatchNorm)]


def freeze_statistics(network: nn.Module) -> None:
    """Normalize by the running statistics and do not update them. `network.train()` would undo it."""
    for layer in list_batch_norms(network):
        layer.eval()


def freeze_affine(network: nn.Module) -> None:
    """Do not train scale and shift."""
    for layer in list_batch_norms(network):
        for parameter in layer.parameters(recurse=False):
            parameter.requires_grad_(False)
