"""Files that run without kinfold: the same embeddings as the original, checked by the runtimes themselves."""

import io
import json
import sys
import zipfile

import numpy as np
import pytest
import torch
from torch import nn

import kinfold
from kinfold import models
from kinfold.data import BN_INCEPTION, IMAGENET, Normalize
from kinfold.models.export import DeployedModel, ExportError, export

onnx = pytest.importorskip("onnx", reason="the extra export is not installed")
onnxruntime = pytest.importorskip("onnxruntime", reason="the extra export is not installed")

FORMATS = {"onnx": "model.onnx", "torch": "model.pt2"}
GRAY = Normalize((0.5,), (0.25,))


def colorful(dim=5):
    """A small network whose answer depends on the order of the channels; batch norm with statistics of its own."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        norm = nn.BatchNorm2d(8)
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2.0)
        layers = (nn.Conv2d(3, 8, 3, padding=1), norm, nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
        return nn.Sequential(*layers, nn.Linear(32, dim))


def pictures(count, channels=3, size=12, seed=1):
    source = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, channels, size, size), generator=source, dtype=torch.uint8)


def answers(path, inputs):
    """What the file says, through its own runtime and nothing of ours."""
    if path.suffix == ".onnx":
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        return session.run(["embeddings"], {session.get_inputs()[0].name: inputs.numpy()})[0]
    with torch.inference_mode():
        return torch.export.load(path).module()(inputs).numpy()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", FORMATS.values())
@pytest.mark.parametrize("unit", [True, False])
@pytest.mark.parametrize("normalize", [IMAGENET, BN_INCEPTION], ids=["imagenet", "bgr"])
def test_the_file_gives_the_embeddings_of_bytes_for_any_batch_size(name, unit, normalize, tmp_path):
    network = colorful().eval()
    written = export(DeployedModel(network, normalize, unit), tmp_path / name, pictures(4))
    assert written.path == tmp_path / name
    assert written.difference <= 1e-4
    for count in (1, 2, 7):
        images = pictures(count, seed=count)
        # the normalization by hand, in float64 and in numpy
        by_hand = (images.numpy() / 255 - np.reshape(normalize.mean, (1, 3, 1, 1))) / np.reshape(
            normalize.std, (1, 3, 1, 1)
        )
        by_hand = by_hand[:, ::-1].copy() if normalize.bgr else by_hand
        with torch.inference_mode():
            expected = network(torch.from_numpy(by_hand).float()).numpy()
        if unit:
            expected /= np.linalg.norm(expected, axis=1, keepdims=True)
        np.testing.assert_allclose(answers(written.path, images), expected, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize("name", FORMATS.values())
def test_features(name, tmp_path):
    rows = torch.randn(6, 20, generator=torch.Generator().manual_seed(0))
    head = models.create("features", dim=4, backbone_options={"width": 20}).eval()
    written = export(DeployedModel(head, None, unit=False), tmp_path / name, rows)
    for some in (rows, rows[:1]):
        with torch.inference_mode():
            np.testing.assert_allclose(answers(written.path, some), head(some).numpy(), atol=1e-5)
    assert written.metadata["input"] == "float32 features (B, d)"
    assert written.metadata["size"] == "20"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", FORMATS.values())
@pytest.mark.parametrize("batch_norm", ["train", "frozen"])
def test_real_glyphs_through_conv4(name, batch_norm, tmp_path):
    glyphs = kinfold.data.load("glyphs").subset("test")
    images = torch.from_numpy(np.stack([glyphs.items[index] for index in range(0, 9000, 300)]))[:, None]
    network = models.create("conv4", dim=16, batch_norm=batch_norm).eval()
    deployed = DeployedModel(network, GRAY, unit=True)
    written = export(deployed, tmp_path / name, images[:8])
    with torch.inference_mode():
        expected = deployed(images).numpy()
    embeddings = answers(written.path, images)
    np.testing.assert_allclose(embeddings, expected, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(embeddings, axis=1), 1, atol=1e-5)
    assert (written.metadata["mode"], written.metadata["size"]) == ("L", "28 x 28")


def test_batch_norm_over_ranks_is_written_as_any_other(tmp_path):
    network = models.synchronize_batch_norm(models.create("conv4", dim=8)).eval()
    written = export(DeployedModel(network, GRAY, unit=True), tmp_path / "model.onnx", pictures(2, channels=1, size=28))
    assert written.difference < 1e-5


@pytest.mark.parametrize("name", FORMATS.values())
def test_weights_in_any_layout(name, tmp_path):
    network = colorful().eval()
    linear = network[-1]
    linear.weight.data = torch.cat([linear.weight.data, linear.weight.data]).T.contiguous().T[:5]
    assert not linear.weight.is_contiguous()
    network[0].to(memory_format=torch.channels_last)
    deployed = DeployedModel(network, IMAGENET, unit=True)
    with torch.inference_mode():
        expected = deployed(pictures(3)).numpy()
    written = export(deployed, tmp_path / name, pictures(3))
    np.testing.assert_allclose(answers(written.path, pictures(3)), expected, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS.values())
@pytest.mark.parametrize("backbone", ["resnet50", "bn-inception", "efficientnet-lite0"])
def test_large_backbones(backbone, name, tmp_path):
    if backbone == "efficientnet-lite0":
        pytest.importorskip("efficientnet_lite_pytorch", reason="efficientnet-lite-pytorch is not installed")
    network = models.create(backbone, dim=64).eval()
    pipeline = kinfold.data.create_pipeline(network.backbone.pipeline)
    deployed = DeployedModel(network, pipeline.normalize, unit=True)
    images = pictures(2, size=pipeline.test.steps[-1].size)  # type: ignore[attr-defined]
    written = export(deployed, tmp_path / name, images)
    with torch.inference_mode():
        np.testing.assert_allclose(answers(written.path, images), deployed(images).numpy(), atol=1e-4)


def test_the_file_says_what_it_is(tmp_path):
    deployed = DeployedModel(colorful(), IMAGENET, unit=True)
    about = {"run": "birds", "distance": "cosine"}
    expected = {
        "kinfold": kinfold.__version__,
        "dim": "5",
        "unit": "yes",
        "input": "uint8 images (B, C, H, W)",
        "mode": "RGB",
        "size": "12 x 12",
        **about,
    }
    for name in FORMATS.values():
        assert export(deployed, tmp_path / name, pictures(2), about=about).metadata == expected
    message = onnx.load(tmp_path / "model.onnx")
    onnx.checker.check_model(message)
    assert {entry.key: entry.value for entry in message.metadata_props} == expected
    shape = message.graph.input[0].type.tensor_type.shape.dim
    assert (message.graph.input[0].name, shape[0].dim_param) == ("images", "batch")
    assert [entry.dim_value for entry in shape][1:] == [3, 12, 12]
    extra = {"kinfold.json": ""}
    torch.export.load(tmp_path / "model.pt2", extra_files=extra)
    assert json.loads(extra["kinfold.json"]) == expected


def test_neither_pictures_nor_folders_of_this_machine_travel_with_the_model(tmp_path):
    images = pictures(3)
    deployed = DeployedModel(colorful(), IMAGENET, unit=True)
    for name in FORMATS.values():
        content = export(deployed, tmp_path / name, images).path.read_bytes()
        for private in (str(tmp_path), "site-packages", "kinfold/models", ".py", images[0].numpy().tobytes()):
            assert (private if isinstance(private, bytes) else private.encode()) not in content
    with zipfile.ZipFile(tmp_path / "model.pt2") as archive:
        traced = next(name for name in archive.namelist() if "sample_inputs" in name)
        (example,), _ = torch.load(io.BytesIO(archive.read(traced)), weights_only=True)
        assert not example.any()


def test_the_archive_holds_no_pickled_weights(tmp_path):
    export(DeployedModel(colorful(), IMAGENET, unit=True), tmp_path / "model.pt2", pictures(2))
    with zipfile.ZipFile(tmp_path / "model.pt2") as archive:
        listed = [name for name in archive.namelist() if name.endswith("_config.json")]
        entries = [entry for name in listed for entry in json.loads(archive.read(name))["config"].values()]
    assert len(entries) > 8
    assert not any(entry["use_pickle"] for entry in entries)


class Changeling(nn.Module):
    """Gives something else once it is exported."""

    def forward(self, rows):
        return rows * 1.01 if torch.compiler.is_compiling() else rows


@pytest.mark.parametrize("name", FORMATS.values())
def test_a_file_that_differs_is_not_left_behind_and_an_older_one_stays(name, tmp_path):
    rows = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    deployed = DeployedModel(Changeling(), None, unit=False)
    with pytest.raises(ExportError, match=r"differs from the original by 0\.0.*more than the tolerance 0\.0001"):
        export(deployed, tmp_path / name, rows)
    assert [*tmp_path.iterdir()] == []
    (tmp_path / name).write_text("older")
    with pytest.raises(ExportError):
        export(deployed, tmp_path / name, rows)
    assert (tmp_path / name).read_text() == "older"
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert export(deployed, tmp_path / name, rows, tolerance=0.1).difference == pytest.approx(0.01, rel=0.1)


def test_differences_are_relative_for_large_embeddings_only(tmp_path):
    rows = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    large = export(DeployedModel(Changeling(), None, unit=False), tmp_path / "large.pt2", rows * 1e6, tolerance=0.1)
    small = export(DeployedModel(Changeling(), None, unit=False), tmp_path / "small.pt2", rows * 1e-3, tolerance=0.1)
    assert large.difference == pytest.approx(0.01, rel=1e-3)
    assert small.difference < 1e-4


class Logarithm(nn.Module):
    def forward(self, rows):
        return rows.log()


class Moody(nn.Module):
    """Decides by the numbers it sees, which a graph cannot."""

    def forward(self, rows):
        return rows if rows.sum() > 0 else -rows


def test_a_model_that_cannot_be_exported_is_an_error(tmp_path):
    rows = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    with pytest.raises(ExportError, match="not finite"):
        export(DeployedModel(Logarithm(), None, unit=False), tmp_path / "model.onnx", rows)
    with pytest.raises(ExportError, match=r"torch\.export cannot trace this model"):
        export(DeployedModel(Moody(), None, unit=False), tmp_path / "model.onnx", rows)
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("missing", ["onnx", "onnxscript", "onnxruntime"])
def test_a_missing_package_is_named(missing, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ImportError, match=rf'needs {missing}: pip install "kinfold\[export\]"'):
        export(DeployedModel(nn.Identity(), None, unit=True), tmp_path / "model.onnx", torch.ones(2, 3))
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"path": "model.pth"}, "use .onnx or .pt2"),
        ({"format": "onyx"}, "did you mean 'onnx'"),
        ({"path": "nowhere/model.onnx"}, "there is no folder"),
        ({"example": torch.zeros(2, 3, dtype=torch.float64)}, "float32 features"),
        ({"example": torch.zeros(2, 3, 4, 4)}, "uint8 images"),
        ({"example": torch.zeros(0, 3)}, "at least 1"),
        ({"tolerance": 0.0}, "tolerance must be above 0"),
    ],
)
def test_invalid_input_is_an_error(changes, message, tmp_path):
    arguments = {"path": "model.onnx", "example": torch.ones(2, 3), **changes}
    arguments["path"] = tmp_path / arguments["path"]
    with pytest.raises(ValueError, match=message):
        export(DeployedModel(nn.Identity(), None, unit=True), **arguments)


def test_the_model_and_the_global_generator_stay_as_they_are(tmp_path):
    network = colorful().train()
    before = {key: value.clone() for key, value in network.state_dict().items()}
    state = torch.get_rng_state()
    export(DeployedModel(network, IMAGENET, unit=True), tmp_path / "model.onnx", pictures(2))
    assert network.training
    assert all(parameter.requires_grad for parameter in network.parameters())
    assert all(torch.equal(value, before[key]) for key, value in network.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
