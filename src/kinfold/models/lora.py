"""Low-rank adapters (LoRA; Hu et al., ICLR 2022) in a backbone whose weights stay as they are, by peft."""

import warnings
from collections.abc import Sequence
from importlib.util import find_spec

from torch import nn

from kinfold.models.backbone import Backbone
from kinfold.models.creation import use_seed
from kinfold.optional import import_optional

# queries and values of attention in the models of transformers and timm
ATTENTION = ("q_proj", "v_proj", "query", "value", "qkv")


def add_adapters(
    backbone: Backbone,
    rank: int = 8,
    alpha: float = 16.0,
    dropout: float = 0.0,
    targets: Sequence[str] = (),
    seed: int = 0,
) -> None:
    """Freeze a backbone and add adapters W x + (alpha / rank) B A x to its linear layers.

    B starts at zero, so that the network starts as it was. A is drawn from `seed`.

    Args:
        backbone: Changed in place.
        rank: Rows of A and columns of B.
        alpha: Scale of an adapter, divided by the rank.
        dropout: Probability of dropout before an adapter.
        targets: Endings of the names of layers that get an adapter; queries and values of attention if left out.
        seed: Seed of the adapters.

    Raises:
        ImportError: peft is not installed.
        ValueError: No layer has such a name.
    """
    peft = import_optional("peft", "peft", "lora", "[lora]")
    network = backbone.get_network()
    endings = tuple(targets) or ATTENTION
    chosen = _find_layers(network, endings)
    if not chosen:
        kinds = sorted({name.rpartition(".")[2] for name in _list_layers(network)})
        raise ValueError(
            f"no layer of the backbone ends in {', '.join(endings)}, so [lora] has nothing to adapt; set lora.targets "
            f"to some of {', '.join(kinds[:12])}"
        )
    for parameter in backbone.parameters():
        parameter.requires_grad_(False)
    config = peft.LoraConfig(r=rank, lora_alpha=alpha, lora_dropout=dropout, target_modules=chosen)
    with use_seed(seed, 2), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about models of peft's own, which this is not
        peft.inject_adapter_in_model(config, network)


def find_attention(backbone: Backbone) -> list[str]:
    """Return the names of the layers that get an adapter by default; none in a network without attention."""
    return _find_layers(backbone.get_network(), ATTENTION)


def has_peft() -> bool:
    """Return whether peft is installed."""
    return find_spec("peft") is not None


def _list_layers(network: nn.Module) -> list[str]:
    return [name for name, module in network.named_modules() if isinstance(module, nn.Linear | nn.Conv2d)]


def _find_layers(network: nn.Module, endings: Sequence[str]) -> list[str]:
    suffixes = tuple(f".{ending}" for ending in endings)
    return [name for name in _list_layers(network) if name.endswith(suffixes) or name in endings]
