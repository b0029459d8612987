"""Any vision model of transformers, by its name on the hub or its folder."""

import inspect
from pathlib import Path
from typing import Any, Literal, get_args

from torch import Tensor, nn

from kinfold.models.backbone import Backbone
from kinfold.models.image_processors import read_pipeline
from kinfold.optional import import_optional

Output = Literal["auto", "pooler", "first-token", "mean-token"]


class TransformersBackbone(Backbone):
    """A vision model of transformers. Of a model for text and images, such as CLIP, it is the vision part.

    A folder is read without asking the hub. A name on the hub is downloaded by transformers if it is not in its cache
    (never with HF_HUB_OFFLINE=1). Code of a model is never run: a model whose architecture is not part of transformers
    is refused.

    The pipeline is that of the model's image processor: size, crop, interpolation, mean and deviation are read from its
    preprocessor_config.json. Images of another size (data.size) interpolate the position embeddings, where the
    architecture can. The stages are the blocks of the network.

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
        self.pipeline = read_pipeline(library, model)
        self.network: nn.Module = network.float().train()  # files may hold half precision
        self.width = _find_width(config, model)
        self.stages = list_blocks(self.network)
        self._size = getattr(config, "image_size", None)
        takes_any_size = "interpolate_pos_encoding" in inspect.signature(self.network.forward).parameters
        self._interpolates = takes_any_size and isinstance(self._size, int)
        self.output = output if output != "auto" else choose_output(self.network)
        missing = [key for key in missing if self.output == "pooler" or not key.startswith("pooler.")]
        if missing:
            raise ValueError(f"{model} has no weights for {missing[0]} ({len(missing)} such), which would stay random")

    def get_network(self) -> nn.Module:
        return self.network

    def forward(self, images: Tensor) -> Tensor:
        options = {"interpolate_pos_encoding": True} if self._interpolates and images.shape[-1] != self._size else {}
        output = self.network(pixel_values=images, **options)
        return get_features(output, self.output)


def get_features(output: Any, kind: Output) -> Tensor:
    """Return the features of what a model returns: (B, width, h, w) or (B, width).

    Args:
        output: A tensor of features, maps or tokens, or an output of transformers with `last_hidden_state`.
        kind: What is taken of tokens.
    """
    pooler: Tensor | None = None
    tokens: Tensor = output
    if not isinstance(output, Tensor):
        tokens, pooler = output["last_hidden_state"], output.get("pooler_output")
    if tokens.ndim != 3:
        return tokens  # (B, width, h, w) or (B, width)
    if kind == "mean-token":
        return tokens.mean(dim=1)
    return tokens[:, 0] if kind == "first-token" or pooler is None else pooler.flatten(1)


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


def list_blocks(network: nn.Module) -> tuple[str, ...]:
    """Names of the blocks of a network: the entries of its longest list of modules."""
    lists = [(name, module) for name, module in network.named_modules() if isinstance(module, nn.ModuleList)]
    if not lists:
        return ()
    name, blocks = max(lists, key=lambda entry: len(entry[1]))
    return tuple(f"network.{name}.{number}" for number in range(len(blocks)))


def choose_output(network: nn.Module) -> Output:
    pooler = getattr(network, "pooler", None)
    dense = isinstance(pooler, nn.Module) and any(isinstance(layer, nn.Linear) for layer in pooler.modules())
    return "first-token" if dense else "pooler"


def _find_width(config: Any, model: str) -> int:
    sizes = getattr(config, "hidden_sizes", None)
    width = sizes[-1] if sizes else getattr(config, "hidden_size", None)
    if width is None:
        raise ValueError(f"{model} is no vision model with features: its configuration has no hidden_size")
    return int(width)
