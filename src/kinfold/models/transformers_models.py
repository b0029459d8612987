"""Any vision model of transformers, by its name on the hub or its folder."""

from pathlib import Path
from typing import Any, Literal, get_args

from torch import Tensor, nn

from kinfold.models.backbone import Backbone
from kinfold.optional import import_optional

Output = Literal["auto", "pooler", "first-token", "mean-token"]


class TransformersBackbone(Backbone):
    """A vision model of transformers. Of a model for text and images, such as CLIP, it is the vision part.

    A folder is read without asking the hub. A name on the hub is downloaded by transformers if it is not in its cache
    (never with HF_HUB_OFFLINE=1). Code of a model is never run: a model whose architecture is not part of transformers
    is refused.

    Weights that transformers saved are loaded by their folder, as transformers/FOLDER with weights="pretrained": the
    keys in these files are not those of the network.

    Args:
        model: Name on the hub, or path of a folder with the configuration.
        pretrained: Load the weights; otherwise they are random.
        output: The feature of a transformer: "pooler", "first-token" or "mean-token". "auto" takes the pooler if it
            learns only a scale, else the first token: a dense layer in the pooler is missing in most published weights
            and would be random. A convolutional network always returns its feature map.

    Raises:
        ImportError: transformers is not installed.
        ValueError: The model cannot be loaded, needs code of its own, or has no weights for some layers.
    """

    weight_file = "the state_dict() of that network (a folder of transformers: weights='pretrained')"

    def __init__(self, model: str, pretrained: bool = False, output: Output = "auto") -> None:
        super().__init__()
        if output not in get_args(Output):
            raise ValueError(f"unknown output {output!r}; there are {', '.join(get_args(Output))}")
        library = import_optional("transformers", "transformers", "transformers", f"transformers/{model}")
        config, network, missing = _load(library, model, pretrained)
        self.network: nn.Module = network.float().train()  # files may hold half precision
        self.width = _find_width(config, model)
        self.output = output if output != "auto" else _choose_output(self.network)
        missing = [key for key in missing if self.output == "pooler" or not key.startswith("pooler.")]
        if missing:
            raise ValueError(f"{model} has no weights for {missing[0]} ({len(missing)} such), which would stay random")

    def get_network(self) -> nn.Module:
        return self.network

    def forward(self, images: Tensor) -> Tensor:
        output = self.network(pixel_values=images)
        tokens: Tensor = output.last_hidden_state
        if tokens.ndim == 4:
            return tokens  # (B, width, h, w)
        if self.output == "first-token":
            return tokens[:, 0]
        if self.output == "mean-token":
            return tokens.mean(dim=1)
        pooler: Tensor | None = output.get("pooler_output")
        return tokens[:, 0] if pooler is None else pooler.flatten(1)


def _load(library: Any, model: str, pretrained: bool) -> tuple[Any, Any, list[str]]:
    """Return the configuration, the network, and the keys that have no weights."""
    options = {"trust_remote_code": False, "local_files_only": Path(model).is_dir()}
    try:
        config = library.AutoConfig.from_pretrained(model, **options)
        config = getattr(config, "vision_config", config)
        if not pretrained:
            return config, library.AutoModel.from_config(config, trust_remote_code=False), []
        # only safetensors: a pickle could run code
        network, report = library.AutoModel.from_pretrained(
            model, config=config, use_safetensors=True, output_loading_info=True, **options
        )
    except (OSError, ValueError) as error:
        if "trust_remote_code" in str(error):
            raise ValueError(
                f"transformers/{model!r} asks to run code of its own, which kinfold never does; take a model whose "
                "architecture is part of transformers, or register a backbone of your own"
            ) from None
        raise ValueError(f"transformers cannot load {model!r}: {error}") from None
    return config, network, sorted(report["missing_keys"])


def _choose_output(network: nn.Module) -> Output:
    pooler = getattr(network, "pooler", None)
    dense = isinstance(pooler, nn.Module) and any(isinstance(layer, nn.Linear) for layer in pooler.modules())
    return "first-token" if dense else "pooler"


def _find_width(config: Any, model: str) -> int:
    sizes = getattr(config, "hidden_sizes", None)
    width = sizes[-1] if sizes else getattr(config, "hidden_size", None)
    if width is None:
        raise ValueError(f"{model} is no vision model with features: its configuration has no hidden_size")
    return int(width)
