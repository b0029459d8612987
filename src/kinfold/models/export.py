"""Export of a trained embedder to one file that runs without kinfold: ONNX, or the archive of torch.export.

The written file is loaded and compared with the original before it gets its name.
"""

import copy
import io
import json
import logging
import math
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
from kinfold.files.paths import check_parent
from kinfold.models.code_output import CodeOutput
from kinfold.models.embedder import Embedder
from kinfold.optional import import_optional
from kinfold.pairs import normalize as normalize_rows

Format = Literal["onnx", "torch"]
EXTENSIONS: dict[str, Format] = {".onnx": "onnx", ".pt2": "torch"}
METADATA = "kinfold.json"  # the extra file in the archive of torch.export
_LARGEST = 2**31 - 2**20  # bytes: an .onnx file is one protobuf message, which ends at 2 GiB


_CHANGED_CODES = 0.01  # share of codes that rounding may move to the next one


class ExportError(RuntimeError):
    """The model could not be written, or the written file computes other embeddings than the original."""


@dataclass(frozen=True)
class ExportedModel:
    """A written file.

    Attributes:
        path: Path of the file.
        difference: Largest difference between its embeddings and those of the original.
        metadata: What is stored in the file about the model.
    """

    path: Path
    difference: float
    metadata: dict[str, str]


class DeployedModel(nn.Module):
    """Normalization of pixels, network, and normalization of embeddings in one module.

    uint8 images (B, C, H, W), already cropped to their size, or float32 features (B, d) -> float32 (B, dim), or codes.

    Args:
        embedder: The trained network.
        normalize: Normalization of uint8 images; None converts the input to float32.
        unit: Scale embeddings to unit length, for embeddings that are compared by cosine similarity.
        output: Turns embeddings into codes of fewer dimensions and bits; None leaves them as they are.

    Examples:
        >>> DeployedModel(nn.Identity(), normalize=None, unit=True)(torch.tensor([[3.0, 4.0]]))
        tensor([[0.6000, 0.8000]])
    """

    def __init__(
        self, embedder: nn.Module, normalize: Normalize | None, unit: bool, output: CodeOutput | None = None
    ) -> None:
        super().__init__()
        self.embedder = embedder
        self.normalize = normalize
        self.unit = unit
        self.output = output

    def forward(self, inputs: Tensor) -> Tensor:
        inputs = inputs.to(torch.float32) if self.normalize is None else self.normalize(inputs)
        rows: Tensor = self.embedder(inputs)
        rows = normalize_rows(rows) if self.unit else rows
        return rows if self.output is None else self.output(rows)


def export(
    deployed: DeployedModel,
    path: Path | str,
    example: Tensor,
    format: Format | None = None,  # noqa: A002
    tolerance: float = 1e-4,
    about: Mapping[str, str] | None = None,
) -> ExportedModel:
    """Write a model to a file, for batches of any size.

    The file is loaded and run on the example, on its first row alone and on random inputs. The difference from the
    original is the largest one of any coordinate, divided by the largest coordinate if that is above 1. Of int8 and
    binary codes it is the share that differs, of which 1 % is accepted, since a value at a rounding boundary may fall
    on either side.

    Args:
        deployed: The model.
        path: The file to write.
        example: Real inputs, as `DeployedModel` takes them. They are not stored.
        format: "onnx" or "torch"; by default that of the file extension (.onnx, .pt2).
        tolerance: Largest accepted difference.
        about: Metadata to store in addition to input, size, dim, unit and version.

    Returns:
        The path, the difference and the metadata.

    Raises:
        ExportError: The model cannot be exported, or the difference is above `tolerance`. `path` is not changed.
        ValueError: An argument is invalid.
        ImportError: ONNX is not installed.
    """
    path = Path(path)
    kind = _choose_format(path, format)
    _check(path, example, tolerance)
    model = copy.deepcopy(deployed).cpu().eval()
    if isinstance(model.embedder, Embedder):
        model.embedder.set_memory_format("contiguous")
    for tensor in (*model.parameters(), *model.buffers()):
        tensor.requires_grad_(False)
        # the archive cannot store other layouts, such as channels last, or views of a larger tensor
        tensor.data = tensor.data.clone(memory_format=torch.contiguous_format)
    example = example.detach().cpu()
    metadata = {**_describe(model, example), **(about or {})}
    temporary = path.with_name(f".{path.stem}.{os.getpid()}{'.onnx' if kind == 'onnx' else '.pt2'}")
    try:
        with _quiet():
            program = _trace(model, example)
            (_write_onnx if kind == "onnx" else _write_torch)(program, temporary, metadata)
            written = (_read_onnx if kind == "onnx" else _read_torch)(temporary)
            difference = _compute_difference(model, written, example)
        accepted = tolerance if model.output is None or model.output.precision == "float32" else _CHANGED_CODES
        if not difference <= accepted:  # also for NaN
            raise ExportError(
                f"the written model differs from the original by {difference:.2g}, more than the tolerance "
                f"{accepted:.2g}; nothing was kept. A larger tolerance accepts it, the other format may agree better"
            )
        os.replace(temporary, path)
    finally:
        with suppress(OSError):  # if the disk cannot be written to, the first error is the one to show
            temporary.unlink(missing_ok=True)
    return ExportedModel(path, difference, metadata)


def _choose_format(path: Path, requested: Format | None) -> Format:
    if requested is None:
        if path.suffix not in EXTENSIONS:
            raise ValueError(f"the extension of {path.name!r} is no known format; use {' or '.join(EXTENSIONS)}")
        return EXTENSIONS[path.suffix]
    if requested not in EXTENSIONS.values():
        near = registry.suggest(requested, EXTENSIONS.values())
        raise ValueError(f"unknown format {requested!r}{near}; it is {' or '.join(EXTENSIONS.values())}")
    return requested


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
    check_parent(path)


def _describe(model: DeployedModel, example: Tensor) -> dict[str, str]:
    """Return what a user of the file needs to know."""
    with torch.inference_mode():
        dim = model(example[:1]).shape[1]
    facts = {"kinfold": __version__, "dim": str(dim), "unit": "yes" if model.unit else "no"}
    if model.output is not None:
        facts |= {"dim": str(model.output.dim), "precision": model.output.precision}
    if example.ndim == 2:
        return {**facts, "input": "float32 features (B, d)", "size": str(example.shape[1])}
    _, channels, height, width = example.shape
    mode = {1: "L", 3: "RGB"}.get(channels, str(channels))
    return {**facts, "input": "uint8 images (B, C, H, W)", "mode": mode, "size": f"{height} x {width}"}


def _trace(model: DeployedModel, example: Tensor) -> torch.export.ExportedProgram:
    # the archive stores the traced input: zeros, so that it holds no image of the user
    zeros = torch.zeros(2, *example.shape[1:], dtype=example.dtype)
    try:
        program = torch.export.export(model, (zeros,), dynamic_shapes=({0: torch.export.Dim("batch", min=1)},))
    except Exception as error:  # torch raises many exception types
        raise ExportError(f"torch.export cannot trace this model: {_first_line(error)}") from error
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # lines and folders of the exporting machine
    return program


def _write_onnx(program: torch.export.ExportedProgram, path: Path, metadata: dict[str, str]) -> None:
    for module in ("onnx", "onnxscript", "onnxruntime"):
        import_optional(module, module, "export", "writing ONNX")
    size = sum(tensor.nbytes for tensor in program.state_dict.values())
    if size > _LARGEST:
        raise ExportError(f"the weights take {size / 2**30:.1f} GiB, but an .onnx file ends at 2 GiB; write a .pt2")
    example = program.example_inputs[0][0]
    name = "images" if example.ndim == 4 else "features"
    try:
        exported = torch.onnx.export(
            program, (example,), dynamo=True, verbose=False, input_names=[name], output_names=["embeddings"]
        )
    except Exception as error:
        raise ExportError(f"torch.onnx cannot write this model: {_first_line(error)}") from error
    assert exported is not None
    message = exported.model_proto
    for part in (*message.graph.node, *message.graph.value_info, *message.graph.input, *message.graph.output):
        del part.metadata_props[:]  # lines and folders of the exporting machine again
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
    with open(path, "xb") as file:  # an existing link is not followed
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _read_onnx(path: Path) -> Callable[[Tensor], Tensor]:
    runtime = import_optional("onnxruntime", "onnxruntime", "export", "checking ONNX")
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda inputs: torch.from_numpy(session.run(None, {name: inputs.numpy()})[0])


def _read_torch(path: Path) -> Callable[[Tensor], Tensor]:
    module: Callable[[Tensor], Tensor] = torch.export.load(
        path
    ).module()  # a file that was just written: loading unpickles
    return module


def _compute_difference(model: DeployedModel, written: Callable[[Tensor], Tensor], example: Tensor) -> float:
    worst = 0.0
    with torch.inference_mode():
        for inputs in (example, example[:1], _draw_inputs(example)):
            expected = model(inputs)
            computed = written(inputs)
            if not expected.isfinite().all():
                raise ExportError("the original itself returns numbers that are not finite; nothing was kept")
            if computed.shape != expected.shape:
                raise ExportError(
                    f"the written model returns {tuple(computed.shape)} instead of {tuple(expected.shape)}"
                )
            if expected.dtype != torch.float32:
                worst = max(worst, _count_changes(computed, expected))
                continue
            scale = max(1.0, float(expected.abs().max()))
            difference = float((computed - expected).abs().max()) / scale
            worst = difference if not difference <= worst else worst  # keeps a NaN
            if worst != worst:
                break
    return worst


def _count_changes(computed: Tensor, expected: Tensor) -> float:
    """Return the share of codes that differ: of int8, by one step at most; of packed bits, share of the bits."""
    if computed.dtype != expected.dtype:
        raise ExportError(f"the written model returns {computed.dtype} instead of {expected.dtype}")
    if expected.dtype == torch.uint8:
        bits = [torch.stack([codes >> shift & 1 for shift in range(8)]) for codes in (computed, expected)]
        return float((bits[0] != bits[1]).float().mean())
    steps = (computed.int() - expected.int()).abs()
    return math.inf if int(steps.max()) > 1 else float((steps > 0).float().mean())


def _draw_inputs(example: Tensor) -> Tensor:
    """Draw inputs of the same kind, with another batch size."""
    generator = torch.Generator().manual_seed(0)
    shape = (example.shape[0] + 3, *example.shape[1:])
    if example.dtype == torch.uint8:
        return torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
    mean, spread = example.mean(), example.std(correction=0)
    return torch.randn(shape, generator=generator) * spread + mean


def _first_line(error: Any) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress warnings of the exporter about deprecations inside torch and about unused operators."""
    registration = logging.getLogger("torch.onnx._internal.exporter._registration")
    level = registration.level
    registration.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", r".*isinstance\(treespec, LeafSpec\).* is deprecated", FutureWarning)
            yield
    finally:
        registration.setLevel(level)
