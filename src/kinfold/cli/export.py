"""`kinfold export`: the network of a run as one file that runs without kinfold."""

import copy
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kinfold.cli.plugins import Plugins
from kinfold.cli.runs import open_for_use
from kinfold.cli.terminal import echo

if TYPE_CHECKING:
    from torch import Tensor

    from kinfold.data.transforms import Transform
    from kinfold.experiments import Repeat
    from kinfold.models.export import DeployedModel
    from kinfold.training import Run

_EXAMPLES = 8  # items that are compared


def export(
    run: Annotated[Path, typer.Argument(help="The folder of a run, or of a repeat with all its folds.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="An .onnx file, or a .pt2 file of torch.export.")],
    tolerance: Annotated[float, typer.Option(help="The largest difference from the original to accept.")] = 1e-4,
    full: Annotated[bool, typer.Option("--full", help="Full embeddings, also where `compress` chose a size.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    plugin: Plugins = None,
) -> None:
    """Write the network of a run for use elsewhere: bytes of images (or features) in, embeddings out, any batch size.

    Example: `kinfold export runs/birds --out birds.onnx`

    The file contains the normalization of the pixels, and that of the embeddings where the run compares by cosine. It
    is loaded and compared with the original on items of the run; if it differs, it is deleted (exit code 1). Where
    `kinfold compress RUN` chose a size, the file returns codes of that dimension and precision.
    """
    from kinfold.calibration import read_calibration
    from kinfold.cli.progress import show_progress
    from kinfold.embedding import read_run_size
    from kinfold.models.export import EXTENSIONS, DeployedModel, ExportError
    from kinfold.models.export import export as write

    if out.suffix not in EXTENSIONS:
        raise ValueError(f"--out must end in {' or '.join(EXTENSIONS)}, got {out.name!r}")
    if not tolerance > 0:
        raise ValueError(f"--tolerance must be above 0, got {tolerance}")
    opened = open_for_use(run)
    pipeline = opened.pipeline
    about = {"run": opened.folder.resolve().name, "distance": str(opened.distance)}
    if pipeline is not None:
        about |= {"mode": pipeline.mode, "background": pipeline.background, "transform": repr(pipeline.test)}
    calibration = read_calibration(opened)
    if calibration is not None:
        about |= {"threshold": f"{calibration.threshold:.9g}", "far": f"{calibration.far:g}"}
        about |= {"threshold_kind": calibration.kind, "calibration_classes": str(calibration.classes)}
    size = None if full else read_run_size(opened)
    network = copy.deepcopy(opened.model()).float().cpu().eval()
    normalize = None if pipeline is None else pipeline.normalize
    deployed = DeployedModel(network, normalize, unit=opened.distance == "cosine")
    try:
        with show_progress(enabled=not as_json) as progress:
            report = progress or (lambda stage, share: None)
            report("compare with the run", 0.0)
            example = _check_example(opened, deployed, tolerance)
            report("compare with the run", 1.0)
            deployed.output = None if size is None else size.create_output()
            report("write and check", 0.0)
            written = write(deployed, out, example, tolerance=tolerance, about=about)
            report("write and check", 1.0)
    except ExportError as error:
        echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None
    if as_json:
        content = {"path": str(out), "bytes": out.stat().st_size, "difference": written.difference}
        echo(json.dumps({**content, "tolerance": tolerance, "metadata": written.metadata}, indent=2))
        return
    echo(f"{out}: {out.stat().st_size / 1e6:.1f} MB, differs from the original by at most {written.difference:.1e}")
    for key, value in written.metadata.items():
        text = value
        if pipeline is not None and key == "transform":
            text = f"{describe_transform(pipeline.test)}, before the model"
        elif key == "background":
            text = f"transparent pixels are drawn on {value}, before the transform"
        echo(f"  {key}: {text}")


def describe_transform(transform: "Transform") -> str:
    """Describe what is done to an image before the network; of a transform of one's own, return the name.

    Examples:
        >>> from kinfold.data.transforms import CenterCrop, Compose, Resize
        >>> describe_transform(Compose((Resize(256), CenterCrop(224))))
        'short side to 256 pixels (bilinear), then the middle 224 x 224'
    """
    from kinfold.data.transforms import CenterCrop, Compose, Resize, Warp

    match transform:
        case Compose():
            return ", then ".join(map(describe_transform, transform.steps)) or "nothing"
        case Resize():
            return f"short side to {transform.size} pixels ({transform.resample.name.lower()})"
        case Warp():
            return f"both sides to {transform.size} pixels ({transform.resample.name.lower()})"
        case CenterCrop():
            return f"the middle {transform.size} x {transform.size}"
    return str(getattr(transform, "__name__", type(transform).__name__))


def _check_example(run: "Run | Repeat", deployed: "DeployedModel", tolerance: float) -> "Tensor":
    """Return a few items of the run as input of the exported model, which must embed them as the run does."""
    import numpy as np
    import torch

    from kinfold.data import Batches
    from kinfold.embedding.compute import compute_embeddings
    from kinfold.models.export import ExportError
    from kinfold.pairs import normalize

    dataset = run.data("train")
    mask = np.zeros(len(dataset), dtype=bool)
    mask[np.linspace(0, len(dataset) - 1, _EXAMPLES).astype(int)] = True
    dataset = dataset.where(mask)
    pipeline = run.pipeline
    if pipeline is None:
        inputs = next(iter(Batches(dataset, batch_size=len(dataset)))).images.float()
    else:
        batches = Batches(
            dataset, pipeline.test, mode=pipeline.mode, background=pipeline.background, batch_size=len(dataset)
        )
        inputs = next(iter(batches)).images
    # in float32, whatever the run computed in
    expected = compute_embeddings(deployed.embedder, dataset, pipeline)
    with torch.inference_mode():
        embeddings = deployed(inputs)
    if deployed.unit:
        expected = normalize(expected)
    difference = float((embeddings - expected).abs().max() / expected.abs().max().clamp(min=1.0))
    if not difference <= tolerance:
        raise ExportError(
            f"the network with its normalization returns other embeddings than the run itself, by {difference:.2g}; "
            "this is an error in kinfold: please report it with the configuration of the run"
        )
    return inputs
