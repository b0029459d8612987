"""Networks of torchvision, timm and transformers behind one adapter.

torchvision and timm are stood in for by modules that have the parts the adapter uses, with the names the libraries give
them; transformers is real, with configurations that are made here and nothing downloaded.
"""

import json
import sys
from collections import OrderedDict
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import ClassVar

import pytest
import torch
from torch import nn

from kinfold import models
from kinfold.data import IMAGENET


class DenseNet(nn.Module):
    """The parts of torchvision's DenseNet, with a few layers."""

    def __init__(self):
        super().__init__()
        layers = OrderedDict(conv0=nn.Conv2d(3, 4, 3), pool0=nn.MaxPool2d(2))
        for number in (1, 2, 3):
            layers[f"denseblock{number}"] = nn.Conv2d(4, 4, 1)
            layers[f"transition{number}"] = nn.AvgPool2d(2)
        layers["denseblock4"] = nn.Conv2d(4, 1920, 1)
        layers["norm5"] = nn.BatchNorm2d(1920)
        self.features = nn.Sequential(layers)
        self.classifier = nn.Linear(1920, 1000)

    def forward(self, images):
        raise AssertionError("the classifier has no place here")


CHILDREN = ["conv1", "maxpool1", "conv2", "conv3", "maxpool2", "inception3a", "inception3b", "maxpool3"]
CHILDREN += [f"inception4{letter}" for letter in "abcde"] + ["maxpool4", "inception5a", "inception5b"]


class GoogLeNet(nn.Module):
    """The children of torchvision's GoogLeNet, each a 1 x 1 convolution or a pooling."""

    def __init__(self):
        super().__init__()
        channels = 3
        for name in CHILDREN:
            if name.startswith("maxpool"):
                self.add_module(name, nn.MaxPool2d(3, stride=2, ceil_mode=True))
            else:
                width = 1024 if name == "inception5b" else channels + 1
                self.add_module(name, nn.Conv2d(channels, width, 1))
                channels = width
        self.aux1, self.aux2 = nn.Linear(2, 2), nn.Linear(2, 2)
        self.fc = nn.Linear(1024, 1000)

    def forward(self, images):
        raise AssertionError("the classifier has no place here")


@pytest.fixture
def torchvision(monkeypatch):
    requests = []

    def recorded(network):
        return lambda **options: requests.append(options) or network()

    library = ModuleType("torchvision.models")
    vars(library).update(densenet201=recorded(DenseNet), googlenet=recorded(GoogLeNet))
    monkeypatch.setitem(sys.modules, "torchvision", ModuleType("torchvision"))
    monkeypatch.setitem(sys.modules, "torchvision.models", library)
    return requests


def images(size=64):
    return torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(0))


def test_densenet201_is_torchvisions_up_to_its_last_relu(torchvision):
    embedder = models.create("densenet201", dim=3).eval()
    backbone = embedder.backbone
    assert torchvision == [{"weights": None}]
    maps = backbone(images())
    assert torch.equal(maps, backbone.network.features(images()).clamp_min(0))
    assert maps.min() == 0
    assert maps.shape[1] == backbone.width == 1920
    assert embedder(images()).shape == (2, 3)
    assert [backbone.get_submodule(stage) for stage in backbone.stages][-1] is backbone.network.features.norm5
    assert backbone.pipeline == "study"


def test_googlenet_runs_its_children_in_order_on_what_it_was_trained_with(torchvision):
    backbone = models.create("googlenet").backbone.eval()
    assert torchvision == [{"weights": None, "aux_logits": False, "init_weights": False}]
    ran = []
    for stage in backbone.stages:
        backbone.get_submodule(stage).register_forward_hook(lambda *_, stage=stage: ran.append(stage))
    pixels = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    mean, deviation = (torch.tensor(part)[:, None, None] for part in (IMAGENET.mean, IMAGENET.std))
    expected = 2 * pixels - 1
    for name, layer in backbone.network.named_children():
        assert name not in ("fc", "aux1", "aux2")
        expected = layer(expected)
    ran.clear()
    features = backbone((pixels - mean) / deviation)
    assert torch.allclose(features, expected.clamp_min(0), atol=1e-5)
    assert features.shape == (2, 1024, 4, 4)
    assert tuple(ran) == backbone.stages


def test_published_weights_are_requested_by_one_name(torchvision):
    models.create("densenet201", weights="imagenet")
    models.create("googlenet", weights="pretrained")
    assert torchvision == [{"weights": "IMAGENET1K_V1"}] * 2


def test_a_local_file_has_the_keys_of_the_library(torchvision, tmp_path):
    weights = {key: value + 1 for key, value in DenseNet().state_dict().items()}
    torch.save(weights, tmp_path / "w.pth")
    backbone = models.create("densenet201", weights=tmp_path / "w.pth").backbone
    assert torch.equal(backbone.network.features.conv0.weight, weights["features.conv0.weight"])
    del weights["features.conv0.weight"]
    torch.save(weights, tmp_path / "w.pth")
    with pytest.raises(ValueError, match=r"missing: features\.conv0\.weight\. Expected .* torchvision's densenet201"):
        models.create("densenet201", weights=tmp_path / "w.pth")


class TimmNetwork(nn.Module):
    """The methods and attributes that every model of timm has."""

    default_cfg: ClassVar = {"mean": IMAGENET.mean, "std": IMAGENET.std, "classifier": "head.fc"}
    num_features = 6

    def __init__(self, tokens, num_classes):
        super().__init__()
        assert num_classes == 0
        self.tokens = tokens
        self.stem = nn.Conv2d(3, 6, 8, stride=8)

    def forward_features(self, images):
        maps = self.stem(images)
        return maps.flatten(2).transpose(1, 2) if self.tokens else maps

    def forward_head(self, tokens, pre_logits):
        assert pre_logits
        return tokens[:, 0]


@pytest.fixture
def timm(monkeypatch):
    requests = []

    def create_model(name, pretrained, num_classes):
        requests.append((name, pretrained))
        if name not in ("resnet18", "vit", "densenet201"):
            raise RuntimeError(f"Unknown model ({name})")
        return TimmNetwork(name == "vit", num_classes)

    monkeypatch.setitem(sys.modules, "timm", SimpleNamespace(create_model=create_model))
    return requests


def test_any_model_of_timm_gives_maps_or_what_it_pools_itself(timm):
    convolutional = models.create("timm/resnet18", dim=4)
    assert torch.equal(convolutional.backbone(images()), convolutional.backbone.network.stem(images()))
    transformer = models.create("timm/vit", dim=4, weights="pretrained")
    tokens = transformer.backbone.network.stem(images())
    assert torch.equal(transformer.backbone(images()), tokens[:, :, 0, 0])
    assert transformer(images()).shape == convolutional(images()).shape == (2, 4)
    assert timm == [("resnet18", False), ("vit", True)]
    assert transformer.backbone.pipeline == "study"
    assert transformer.backbone.classifier == ("head.fc.",)


def test_a_model_with_a_normalization_of_its_own_names_no_pipeline(timm, monkeypatch):
    monkeypatch.setattr(TimmNetwork, "default_cfg", {"mean": (0.5,) * 3, "std": (0.5,) * 3})
    assert models.create("timm/vit").backbone.pipeline is None


def test_a_name_unknown_to_timm_is_an_error_with_an_explanation(timm):
    with pytest.raises(ValueError, match=r"timm cannot make 'resnet_18': Unknown model"):
        models.create("timm/resnet_18")


class Broken:
    """A torchvision that was built for another torch: it raises no ImportError."""

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torchvision":
            raise RuntimeError("operator torchvision::nms does not exist")


def test_timm_stands_in_where_torchvision_cannot_be_imported(timm, monkeypatch):
    monkeypatch.setattr(sys, "meta_path", [Broken(), *sys.meta_path])
    monkeypatch.delitem(sys.modules, "torchvision", raising=False)
    assert models.create("densenet201").backbone.width == 6
    assert timm == [("densenet201", False)]


def test_without_either_library_the_error_says_what_to_install(monkeypatch):
    for name in ("torchvision", "torchvision.models", "timm"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match="neither can be imported: pip install torchvision"):
        models.create("googlenet")
    with pytest.raises(ImportError, match=r"timm/resnet18 needs timm.*pip install \"kinfold\[timm\]\""):
        models.create("timm/resnet18")
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ImportError, match=r"pip install \"kinfold\[transformers\]\""):
        models.create("transformers/facebook/dinov2-small")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A function that writes a configuration, and weights on demand, to a folder, as save_pretrained does."""
    transformers = pytest.importorskip("transformers", reason="transformers is an extra")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    transformers.utils.logging.disable_progress_bar()
    tiny = {"num_hidden_layers": 1, "num_attention_heads": 2, "hidden_size": 16, "image_size": 32, "patch_size": 8}
    configurations = {
        "resnet": lambda: transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 12], depths=[1, 1]),
        "vit": lambda: transformers.ViTConfig(**tiny, intermediate_size=16),
        "dinov2": lambda: transformers.Dinov2Config(**tiny),
        "clip": lambda: transformers.CLIPConfig(vision_config={**tiny, "intermediate_size": 16}),
    }

    def written(kind, weights=False):
        configuration = configurations[kind]()
        configuration.save_pretrained(tmp_path / kind)
        if weights:
            with torch.random.fork_rng(devices=[]):
                network = transformers.AutoModel.from_config(configuration)
                for parameter in network.parameters():
                    nn.init.normal_(parameter, std=0.3)
            network.save_pretrained(tmp_path / kind)
            return f"transformers/{tmp_path / kind}", network.eval()
        return f"transformers/{tmp_path / kind}"

    return written


def test_a_convolutional_network_of_transformers_gives_its_map(folder):
    name, network = folder("resnet", weights=True)
    embedder = models.create(name, dim=3, weights="pretrained").eval()
    maps = embedder.backbone(images())
    assert maps.shape == (2, 12, 8, 8)
    assert torch.equal(maps, network(images()).last_hidden_state)
    assert torch.allclose(embedder.features(images()), network(images()).pooler_output.flatten(1), atol=1e-5)
    assert embedder(images()).shape == (2, 3)


def test_a_vision_transformer_returns_its_first_token_by_default(folder):
    name, network = folder("vit", weights=True)
    embeddings = network(images(32))
    expected = {
        "auto": embeddings.last_hidden_state[:, 0],  # its pooler has a dense layer
        "first-token": embeddings.last_hidden_state[:, 0],
        "mean-token": embeddings.last_hidden_state.mean(dim=1),
        "pooler": embeddings.pooler_output,
    }
    for output, features in expected.items():
        embedder = models.create(name, weights="pretrained", backbone_options={"output": output}).eval()
        assert torch.allclose(embedder.features(images(32)), features, atol=1e-6), output
        assert embedder.backbone.width == 16
    with pytest.raises(ValueError, match="unknown output 'cls'; there are auto, pooler"):
        models.create(name, backbone_options={"output": "cls"})


def test_a_pooler_that_learns_no_dense_layer_is_taken(folder):
    name, network = folder("dinov2", weights=True)
    embedder = models.create(name, weights="pretrained").eval()
    assert torch.allclose(embedder.features(images(32)), network(images(32)).pooler_output, atol=1e-6)


def test_of_clip_the_vision_part_is_taken(folder):
    name, network = folder("clip", weights=True)
    embedder = models.create(name, dim=3, weights="pretrained").eval()
    expected = network.vision_model(images(32)).pooler_output
    assert torch.allclose(embedder.features(images(32)), expected, atol=1e-6)


def test_without_weights_the_seed_decides(folder):
    name = folder("resnet")
    before = torch.get_rng_state()
    first, again, other = (models.create(name, seed=seed).backbone.state_dict() for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert any(not torch.equal(first[key], other[key]) for key in first)


def test_a_folder_with_pickled_weights_or_without_any_is_refused(folder, tmp_path):
    name, network = folder("resnet", weights=True)
    (tmp_path / "resnet" / "model.safetensors").unlink()
    torch.save(network.state_dict(), tmp_path / "resnet" / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"transformers cannot load .*safetensors"):
        models.create(name, weights="pretrained")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="transformers cannot load"):
        models.create(f"transformers/{tmp_path / 'empty'}")


def test_weights_that_a_folder_lacks_are_not_left_random_in_silence(folder, tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    name, _ = folder("vit", weights=True)
    path = tmp_path / "vit" / "model.safetensors"
    weights = safetensors.load_file(path)
    without_pooler = {key: value for key, value in weights.items() if not key.startswith("pooler")}
    assert len(without_pooler) < len(weights)
    safetensors.save_file(without_pooler, path, metadata={"format": "pt"})
    models.create(name, weights="pretrained")  # it is not used
    with pytest.raises(ValueError, match=r"has no weights for pooler\.dense\.bias \(2 such\)"):
        models.create(name, weights="pretrained", backbone_options={"output": "pooler"})
    without_norm = {key: value for key, value in without_pooler.items() if key != "layernorm.weight"}
    safetensors.save_file(without_norm, path, metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"has no weights for layernorm\.weight \(1 such\)"):
        models.create(name, weights="pretrained")


@pytest.mark.parametrize("weights", [None, "pretrained"])
def test_code_that_a_folder_brings_along_never_runs(folder, tmp_path, monkeypatch, weights):
    del folder  # transformers is there, and offline
    evil = tmp_path / "evil"
    evil.mkdir()
    auto_map = {"AutoConfig": "code.Config", "AutoModel": "code.Model"}
    (evil / "config.json").write_text(json.dumps({"model_type": "evil", "auto_map": auto_map}))
    (evil / "code.py").write_text(
        "from pathlib import Path\n"
        "from transformers import PretrainedConfig, PreTrainedModel\n"
        f"Path({str(tmp_path / 'executed')!r}).touch()\n"
        "class Config(PretrainedConfig):\n    model_type = 'evil'\n"
        "class Model(PreTrainedModel):\n    config_class = Config\n"
    )
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr("builtins.input", lambda *question: "y")  # who would say yes
    with pytest.raises(ValueError, match=r"evil' asks to run code of its own, which kinfold never does"):
        models.create(f"transformers/{evil}", weights=weights)
    assert not (tmp_path / "executed").exists()


def test_a_folder_is_read_without_asking_the_hub(folder, monkeypatch):
    name, network = folder("resnet", weights=True)

    def connect(*arguments, **options):
        raise AssertionError(f"the network was asked: {arguments}")

    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("socket.socket.connect", connect)
    monkeypatch.setattr("socket.getaddrinfo", connect)
    embedder = models.create(name, weights="pretrained").eval()
    assert torch.equal(embedder.backbone(images()), network(images()).last_hidden_state)


def test_a_model_in_the_cache_of_the_hub_is_found_by_its_name(folder, tmp_path, monkeypatch):
    name, network = folder("resnet", weights=True)
    commit = tmp_path / "hub" / "models--somebody--small" / "snapshots" / ("0" * 40)
    commit.parent.mkdir(parents=True)
    Path(name.removeprefix("transformers/")).rename(commit)
    (commit.parents[1] / "refs").mkdir()
    (commit.parents[1] / "refs" / "main").write_text("0" * 40)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # do not wait for a network
    embedder = models.create("transformers/somebody/small", weights="pretrained").eval()
    assert torch.equal(embedder.backbone(images()), network(images()).last_hidden_state)
