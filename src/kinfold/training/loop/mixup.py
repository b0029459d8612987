"""Manifold mixup for metric learning (Verma et al., ICML 2019; Roth et al., ICML 2020, supplement H).

At one layer of the network, drawn for each batch, every hidden state h_i becomes  m h_i + (1 - m) h_pi(i)  with a
permutation pi of the batch and m ~ Beta(alpha, alpha). An item then has two labels, y_i with weight m and y_pi(i) with
weight 1 - m, and the loss is  m L(E, y) + (1 - m) L(E, y_pi).  A loss with a miner mines once for each set of labels.
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
    """One draw for a batch of B items.

    Attributes:
        layer: Where hidden states are mixed.
        share: The weight m of an item itself.
        partner: The item that each one is mixed with, (B,).
    """

    layer: str
    share: float
    partner: Tensor

    def apply(self, hidden: Tensor) -> Tensor:
        """Mix the rows of a tensor (B, ...)."""
        return self.share * hidden + (1 - self.share) * hidden[self.partner]

    @contextmanager
    def hook(self, backbone: nn.Module) -> Iterator[None]:
        """Mix the output of the drawn layer while the network runs; the caller mixes the input."""
        if self.layer == "input":
            yield
            return

        def mix_output(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
            return self.apply(output)

        handle = backbone.get_submodule(self.layer).register_forward_hook(mix_output)
        try:
            yield
        finally:
            handle.remove()


def check_layers(config: MixupConfig, backbone: nn.Module) -> None:
    """Raise a ValueError where the backbone does not have one of the layers."""
    stages = ("input", *getattr(backbone, "stages", ()))
    for layer in config.layers:
        if layer not in stages:
            raise ValueError(
                f"mixup.layers: this backbone has no layer {layer!r}{suggest(layer, stages)}; "
                f"it can mix at {', '.join(stages)}"
            )
    if not config.layers:
        raise ValueError(f"mixup.layers is empty; choose from {', '.join(stages)}")


def draw_mix(config: MixupConfig, batch_size: int, generator: Generator) -> Mix:
    """Draw layer, share and partners for a batch."""
    layer = config.layers[int(torch.randint(len(config.layers), (), generator=generator))]
    # Beta(a, a) as a ratio of two Gamma(a) draws
    alpha = torch.full((2,), config.alpha, dtype=torch.float64)
    one, other = torch._standard_gamma(alpha, generator=generator).clamp(min=1e-300).tolist()
    return Mix(layer, one / (one + other), torch.randperm(batch_size, generator=generator))
