"""A trained embedder as one file that runs without kinfold: ONNX, or torch.export's archive.

What is written is loaded back and compared with the original before it gets its name.
"""

import copy
import io
import json
import logging
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from kinfold import __version__, registry
from kinfold.data.normalize import Normalize
from kinfold.optional import import_optional

Format = Literal["onnx", "torch"]
ENDINGS: dict[str, Format] = {".onnx": "onnx", ".pt2": "torch"}
METADATA = "kinfold.json"  # the extra file in the archive of torch.export
_LARGEST = 2**31 - 2**20  # bytes: an .onnx file is one protobuf message, which ends at 2 GiB


class ExportError(RuntimeError):
    """The model could not be written, or what was written does not give the embeddings of the original."""


@dataclass(frozen=True)
class ExportedModel:
    """The file, and the largest difference that was seen between it and the original."""

    path: Path
    difference: float
    metadata: dict[str, str]


class DeployedModel(nn.Module):
    """Everything between bytes and embeddings: normalisation of the pixels, network, and unit length where it counts.

    uint8 images (B, C, H, W), already cropped to their size, or float32 features (B, d) -> float32 (B, dim).
    `normalize=None` hands bytes on as floats. `unit=True` is for embeddings that are compared by their cosine.

    >>> DeployedModel(nn.Identity(), normalize=None, unit=True)(torch.tensor([[3.0, 4.0]]))
    tensor([[0.6000, 0.8000]])
    """

    def __init__(self, embedder: nn.Module, normalize: Normalize | None, unit: bool) -> None:
        super().__init__()
        self.embedder = embedder
        self.normalize = normalize
        self.unit = unit

    def forward(self, inputs: Tensor) -> Tensor:
        inputs = inputs.to(torch.float32) if self.normalize is None else self.normalize(inputs)
        rows: Tensor = self.embedder(inputs)
        return nn.functional.normalize(rows, dim=1) if self.unit else rows


def export(
    deployed: DeployedModel,
    path: Path | str,
    example: Tensor,
    format: Format | None = None,  # noqa: A002
    tolerance: float = 1e-4,
    about: Mapping[str, str] | None = None,
) -> ExportedModel:
    """Write `deployed` to `path` for batches of any size; the format is that of the ending (.onnx, .pt2) if left out.

    `example` holds real inputs, as `Deployed` takes them; none of them is stored. The file is loaded back and run on
    them, on one of them alone and on random inputs. Its difference is the largest one of a coordinate, in units of the
    largest coordinate where that is above 1; more than `tolerance` is an ExportError, and leaves `path` as it was.
    `about` is stored beside what is known here: input, size, dim, unit, version.
    """
    path = Path(path)
    kind = _kind(path, format)
    _check(path, example, tolerance)
    model = copy.deepcopy(deployed).cpu().eval()
    for tensor in (*model.parameters(), *model.buffers()):
        tensor.requires_grad_(False)
        # the archive cannot hold other layouts, such as channels last, or parts of a larger tensor, as they are
        tensor.data = tensor.data.clone(memory_format=torch.contiguous_format)
    example = example.detach().cpu()
    metadata = {**_facts(model, example), **(about or {})}
    temporary = path.with_name(f".{path.stem}.{os.getpid()}{'.onnx' if kind == 'onnx' else '.pt2'}")
    try:
        with _quiet():
            program = _traced(model, example)
            (_write_onnx if kind == "onnx" else _write_torch)(program, temporary, metadata)
            written = (_read_onnx if kind == "onnx" else _read_torch)(temporary)
            difference = _difference(model, written, example)
        if not difference <= tolerance:  # NaN is no agreement either
            raise ExportError(
                f"the written model differs from the original by {difference:.2g}, more than the tolerance "
                f"{tolerance:.2g}; nothing was kept. A larger tolerance accepts it, the other format may agree better"
            )
        os.replace(temporary, path)
    finally:
        with suppress(OSError):  # on a disk that cannot be written to: the first error is the one to show
            temporary.unlink(missing_ok=True)
    return ExportedModel(path, difference, metadata)


def _kind(path: Path, given: Format | None) -> Format:
    if given is None:
        if path.suffix not in ENDINGS:
            raise ValueError(f"the ending of {path.name!r} says no format; use {' or '.join(ENDINGS)}")
        return ENDINGS[path.suffix]
    if given not in ENDINGS.values():
        near = registry.suggest(given, ENDINGS.values())
        raise ValueError(f"unknown format {given!r}{near}; it is {' or '.join(ENDINGS.values())}")
    return given


def _check(path: Path, example: Tensor, tolerance: float) -> None:
    images = example.ndim == 4 and example.dtype == torch.uint8
    features = example.ndim == 2 and example.dtype == torch.float32
    if not (images or features) or example.shape[0] == 0:
        raise ValueError(
            "the example must be uint8 images (B, C, H, W) or float32 features (B, d) with B at least 1, "
            f"got {example.dtype} {tuple(example.shape)}"
        )
    if not tolerance > 0:
        raise ValueError(f"tolerance must be above 0, got {tolerance}")
    if not path.parent.is_dir():
        raise ValueError(f"there is no folder {path.parent} to write {path.name} to")


def _facts(model: DeployedModel, example: Tensor) -> dict[str, str]:
    """What somebody with nothing but the file needs to know."""
    with torch.inference_mode():
        dim = model(example[:1]).shape[1]
    known = {"kinfold": __version__, "dim": str(dim), "unit": "yes" if model.unit else "no"}
    if example.ndim == 2:
        return {**known, "input": "float32 features (B, d)", "size": str(example.shape[1])}
    _, channels, height, width = example.shape
    mode = {1: "L", 3: "RGB"}.get(channels, str(channels))
    return {**known, "input": "uint8 images (B, C, H, W)", "mode": mode, "size": f"{height} x {width}"}


def _traced(model: DeployedModel, example: Tensor) -> torch.export.ExportedProgram:
    # the archive keeps what it was traced with: zeros, so that no picture of the user's travels with the model
    zeros = torch.zeros(2, *example.shape[1:], dtype=example.dtype)
    try:
        program = torch.export.export(model, (zeros,), dynamic_shapes=({0: torch.export.Dim("batch", min=1)},))
    except Exception as reason:  # torch raises many kinds of its own
        raise ExportError(f"torch.export cannot trace this model: {_first_line(reason)}") from reason
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # lines and folders of this machine
    return program


def _write_onnx(program: torch.export.ExportedProgram, path: Path, metadata: dict[str, str]) -> None:
    for module in ("onnx", "onnxscript", "onnxruntime"):
        import_optional(module, module, "export", "writing ONNX")
    size = sum(tensor.nbytes for tensor in program.state_dict.values())
    if size > _LARGEST:
        raise ExportError(f"the weights take {size / 2**30:.1f} GiB, but an .onnx file ends at 2 GiB; write a .pt2")
    given = program.example_inputs[0][0]
    name = "images" if given.ndim == 4 else "features"
    try:
        made = torch.onnx.export(
            program, (given,), dynamo=True, verbose=False, input_names=[name], output_names=["embeddings"]
        )
    except Exception as reason:
        raise ExportError(f"torch.onnx cannot write this model: {_first_line(reason)}") from reason
    assert made is not None
    message = made.model_proto
    for part in (*message.graph.node, *message.graph.value_info, *message.graph.input, *message.graph.output):
        del part.metadata_props[:]  # traces of this machine again
    for function in message.functions:
        for node in function.node:
            del node.metadata_props[:]
    del message.metadata_props[:]
    for key, value in metadata.items():
        message.metadata_props.add(key=key, value=value)
    for value in (*message.graph.input, *message.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    _write(path, message.SerializeToString())


def _write_torch(program: torch.export.ExportedProgram, path: Path, metadata: dict[str, str]) -> None:
    archive = io.BytesIO()  # written to a path, its folders would be named after the temporary file
    torch.export.save(program, archive, extra_files={METADATA: json.dumps(metadata, indent=1)})
    _write(path, archive.getbuffer())


def _write(path: Path, content: bytes | memoryview) -> None:
    path.unlink(missing_ok=True)
    with open(path, "xb") as file:  # a link that lies there is not followed
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _read_onnx(path: Path) -> Callable[[Tensor], Tensor]:
    runtime = import_optional("onnxruntime", "onnxruntime", "export", "checking ONNX")
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda inputs: torch.from_numpy(session.run(None, {name: inputs.numpy()})[0])


def _read_torch(path: Path) -> Callable[[Tensor], Tensor]:
    module: Callable[[Tensor], Tensor] = torch.export.load(path).module()  # our own file: loading unpickles
    return module


def _difference(model: DeployedModel, written: Callable[[Tensor], Tensor], example: Tensor) -> float:
    worst = 0.0
    with torch.inference_mode():
        for inputs in (example, example[:1], _random(example)):
            expected = model(inputs)
            found = written(inputs)
            if not expected.isfinite().all():
                raise ExportError("the original itself gives numbers that are not finite; nothing was kept")
            if found.shape != expected.shape:
                raise ExportError(f"the written model gives {tuple(found.shape)} instead of {tuple(expected.shape)}")
            scale = max(1.0, float(expected.abs().max()))
            difference = float((found - expected).abs().max()) / scale
            worst = difference if not difference <= worst else worst  # keeps a NaN
            if worst != worst:
                break
    return worst


def _random(example: Tensor) -> Tensor:
    """Inputs of the same kind, of a batch size that was not seen before."""
    source = torch.Generator().manual_seed(0)
    shape = (example.shape[0] + 3, *example.shape[1:])
    if example.dtype == torch.uint8:
        return torch.randint(0, 256, shape, generator=source, dtype=torch.uint8)
    mean, spread = example.mean(), example.std(correction=0)
    return torch.randn(shape, generator=source) * spread + mean


def _first_line(reason: Any) -> str:
    return f"{type(reason).__name__}: {str(reason).strip().splitlines()[0] if str(reason).strip() else ''}"


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what the exporter says about itself: deprecations inside torch, and operators that are not used here."""
    registration = logging.getLogger("torch.onnx._internal.exporter._registration")
    level = registration.level
    registration.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", r".*isinstance\(treespec, LeafSpec\).* is deprecated", FutureWarning)
            yield
    finally:
        registration.setLevel(level)
