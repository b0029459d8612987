"""Any vision model of transformers by its name on the hub or the folder it lies in."""

from pathlib import Path
from typing import Any, Literal, get_args

from torch import Tensor, nn

from kinfold.models.backbone import Backbone
from kinfold.optional import import_optional

Output = Literal["auto", "pooler", "first-token", "mean-token"]


class TransformersBackbone(Backbone):
    """The model of that name: its configuration from the hub or a folder, random weights unless `pretrained`.

    A folder is read as it is, without asking the hub. A name of the hub is fetched by transformers where it is not in
    its cache (never with HF_HUB_OFFLINE=1). Code that a model brings along is never run: a model whose architecture is
    not part of transformers is refused.

    output: what of a transformer is the feature; a convolutional network gives its map in any case
        "auto": its pooler where that learns nothing but a scale, else the first token; a dense layer in the pooler is
            missing in most published weights and would be random
        "pooler", "first-token", "mean-token": as they say

    Weights that transformers itself saved are loaded by their folder, transformers/FOLDER with weights="pretrained":
    the keys in its files are not those of the network.

    Of a model with text and images, such as CLIP, the vision part is taken.
    """

    weight_file = "the state_dict() of that network (a folder of transformers: weights='pretrained')"

    def __init__(self, model: str, pretrained: bool = False, output: Output = "auto") -> None:
        super().__init__()
        if output not in get_args(Output):
            raise ValueError(f"unknown output {output!r}; there are {', '.join(get_args(Output))}")
        library = import_optional("transformers", "transformers", "transformers", f"transformers/{model}")
        config, made, lost = _made(library, model, pretrained)
        self.network: nn.Module = made.float().train()  # files may keep half precision
        self.width = _width(config, model)
        self.output = output if output != "auto" else _best_output(self.network)
        lost = [key for key in lost if self.output == "pooler" or not key.startswith("pooler.")]
        if lost:
            raise ValueError(f"{model} has no weights for {lost[0]} ({len(lost)} such), which would stay random")

    def get_network(self) -> nn.Module:
        return self.network

    def forward(self, images: Tensor) -> Tensor:
        found = self.network(pixel_values=images)
        tokens: Tensor = found.last_hidden_state
        if tokens.ndim == 4:
            return tokens  # (B, width, h, w)
        if self.output == "first-token":
            return tokens[:, 0]
        if self.output == "mean-token":
            return tokens.mean(dim=1)
        pooler: Tensor | None = found.get("pooler_output")
        return tokens[:, 0] if pooler is None else pooler.flatten(1)


def _made(library: Any, model: str, pretrained: bool) -> tuple[Any, Any, list[str]]:
    """Configuration, network, and the keys for which no weights were found."""
    options = {"trust_remote_code": False, "local_files_only": Path(model).is_dir()}
    try:
        config = library.AutoConfig.from_pretrained(model, **options)
        config = getattr(config, "vision_config", config)
        if not pretrained:
            return config, library.AutoModel.from_config(config, trust_remote_code=False), []
        # safetensors alone: a pickle could run code
        made, report = library.AutoModel.from_pretrained(
            model, config=config, use_safetensors=True, output_loading_info=True, **options
        )
    except (OSError, ValueError) as problem:
        if "trust_remote_code" in str(problem):
            raise ValueError(
                f"transformers/{model!r} asks to run code of its own, which kinfold never does; take a model whose "
                "architecture is part of transformers, or register a backbone of your own"
            ) from None
        raise ValueError(f"transformers cannot load {model!r}: {problem}") from None
    return config, made, sorted(report["missing_keys"])


def _best_output(network: nn.Module) -> Output:
    pooler = getattr(network, "pooler", None)
    dense = isinstance(pooler, nn.Module) and any(isinstance(layer, nn.Linear) for layer in pooler.modules())
    return "first-token" if dense else "pooler"


def _width(config: Any, model: str) -> int:
    sizes = getattr(config, "hidden_sizes", None)
    width = sizes[-1] if sizes else getattr(config, "hidden_size", None)
    if width is None:
        raise ValueError(f"{model} is no vision model with features: its configuration has no hidden_size")
    return int(width)
