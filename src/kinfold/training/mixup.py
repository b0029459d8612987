"""Manifold mixup for metric learning (Verma et al., ICML 2019; Roth et al., ICML 2020, supplement H).

At one layer of the network, drawn for each batch, every hidden state h_i becomes  m h_i + (1 - m) h_pi(i)  with a
permutation pi of the batch and m ~ Beta(alpha, alpha). An item then has two labels, y_i with weight m and y_pi(i) with
weight 1 - m, and the loss is  m L(E, y) + (1 - m) L(E, y_pi):  a loss with a miner mines once for each set of labels.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor, nn

from kinfold.registry import suggest
from kinfold.training.config.settings import MixupConfig


@dataclass(frozen=True)
class Mix:
    """One draw: where, how much, and with whom."""

    layer: str
    share: float
    partner: Tensor  # (B,)

    def mixed(self, hidden: Tensor) -> Tensor:
        return self.share * hidden + (1 - self.share) * hidden[self.partner]

    @contextmanager
    def within(self, backbone: nn.Module) -> Iterator[None]:
        """Mix the output of the chosen layer while the network runs; input is mixed by the caller."""
        if self.layer == "input":
            yield
            return

        def replace(module: nn.Module, given: Any, output: Tensor) -> Tensor:
            return self.mixed(output)

        handle = backbone.get_submodule(self.layer).register_forward_hook(replace)
        try:
            yield
        finally:
            handle.remove()


def check_layers(settings: MixupConfig, backbone: nn.Module) -> None:
    stages = ("input", *getattr(backbone, "stages", ()))
    for layer in settings.layers:
        if layer not in stages:
            raise ValueError(
                f"mixup.layers: this backbone has no layer {layer!r}{suggest(layer, stages)}; "
                f"it can mix at {', '.join(stages)}"
            )
    if not settings.layers:
        raise ValueError(f"mixup.layers is empty; choose from {', '.join(stages)}")


def draw(settings: MixupConfig, count: int, generator: Generator) -> Mix:
    """Layer, share and partners for a batch of `count`."""
    layer = settings.layers[int(torch.randint(len(settings.layers), (), generator=generator))]
    # Beta(a, a) as a ratio of two Gamma(a) draws
    alpha = torch.full((2,), settings.alpha, dtype=torch.float64)
    one, other = torch._standard_gamma(alpha, generator=generator).clamp(min=1e-300).tolist()
    return Mix(layer, one / (one + other), torch.randperm(count, generator=generator))
