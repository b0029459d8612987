"""Backbones that people bring: modules passed in Python, models of transformers, adapters, rates by layer, sizes."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

import kinfold
from kinfold.data import create_dataset
from kinfold.data.items import Rows
from kinfold.models import create
from kinfold.training.config.settings import OptimizerConfig
from kinfold.training.loop.objective import Objective
from kinfold.training.loop.optimizers import build_parameter_groups
from tests.models.test_image_processors import tiny_vit

SIZE = 24


def color_images(classes=8, per_class=6):
    draw = np.random.default_rng(0)
    labels = np.repeat(np.arange(classes), per_class)
    pixels = draw.integers(0, 200, (classes, SIZE, SIZE, 3))[labels] + draw.integers(
        0, 56, (len(labels), SIZE, SIZE, 3)
    )
    return create_dataset("colors", Rows(pixels.astype(np.uint8)), labels, np.where(labels < 6, "train", "test"))


def tables(**changes):
    base = {
        "data": {"validation": 0.3, "pipeline": "small-color"},
        "model": {"dim": 4},
        "sampler": {"name": "spc", "batch_size": 8, "per_class": 4},
        "training": {"steps": 3, "save_every": 1},
        "evaluation": {"every": 2, "metrics": ["map@r"], "diagnose": "never", "selection": "last"},
    }
    return base | changes


def small_net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 6, 5, stride=4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())


def test_a_module_is_trained_as_a_copy_and_has_to_be_passed_again(tmp_path):
    module, data = small_net(), color_images()
    before = copy.deepcopy(module.state_dict())
    run = kinfold.train(tables(), tmp_path / "run", dataset=data, backbone=module)
    assert run.config.model.backbone == "passed"
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    trained = run.model().state_dict()
    assert any(not torch.equal(trained[f"backbone.network.{name}"], value) for name, value in before.items())
    embeddings = run.embed(data)
    assert embeddings.shape == (48, 4)
    assert torch.equal(kinfold.Run.open(tmp_path / "run", data, module).embed(data), embeddings)
    with pytest.raises(ValueError, match="a backbone that was passed in Python and is not stored"):
        kinfold.Run.open(tmp_path / "run", data).embed(data)


def test_a_run_with_a_passed_module_resumes_bit_for_bit(tmp_path):
    def interrupt(event):
        if event.kind == "saved" and event.step == 2:
            raise KeyError("interrupted")

    arguments = {"dataset": color_images(), "backbone": small_net()}
    whole = kinfold.train(tables(), tmp_path / "whole", **arguments)
    with pytest.raises(KeyError):
        kinfold.train(tables(), tmp_path / "run", callbacks=[interrupt], **arguments)
    resumed = kinfold.train(None, tmp_path / "run", resume=True, **arguments)
    weights = whole.model().state_dict()
    assert all(torch.equal(value, weights[name]) for name, value in resumed.model().state_dict().items())


def test_what_is_no_backbone_is_refused(tmp_path):
    with pytest.raises(ValueError, match="backbone= takes a torch module, got str"):
        kinfold.train(tables(), tmp_path / "run", dataset=color_images(), backbone="resnet50")
    with pytest.raises(ValueError, match="Linear does not map images"):
        kinfold.train(tables(), tmp_path / "run", dataset=color_images(), backbone=nn.Linear(3, 4))
    with pytest.raises(ValueError, match=r"no default image pipeline; set data.pipeline"):
        kinfold.train(tables(data={}), tmp_path / "run", dataset=color_images(), backbone=small_net())


@pytest.mark.parametrize("channels", [1, 3])
def test_size_and_flip_reach_the_network(tmp_path, channels):
    model = {"backbone": "conv4", "dim": 4, "backbone_options": {"channels": channels, "width": 8}}
    data = {"size": 40, "flip": True, "validation": 0.3}
    run = kinfold.train(tables(model=model, data=data), tmp_path / "run", dataset=color_images())
    pipeline = run.pipeline
    assert pipeline is not None
    assert pipeline.mode == ("L" if channels == 1 else "RGB")
    batch = next(iter(kinfold.data.Batches(run.data("train"), pipeline.train, pipeline.normalize, mode=pipeline.mode)))
    assert batch.images.shape[1:] == (channels, 40, 40)
    assert "RandomFlip" in repr(pipeline.train)
    assert kinfold.Run.open(tmp_path / "run").config.data.size == 40


def test_a_model_of_transformers_trains_with_adapters_at_another_size(tmp_path):
    pytest.importorskip("peft")
    folder = tmp_path / "vit"
    folder.mkdir()
    tiny_vit(folder, size={"height": 32, "width": 32}, image_mean=[0.5] * 3, image_std=[0.5] * 3)
    model = {"backbone": f"transformers/{folder}", "weights": "pretrained", "dim": 4}
    settings = tables(model=model, data={"validation": 0.3, "size": 16}, lora={"rank": 2}, optimizer={"lr": 0.01})
    run = kinfold.train(settings, tmp_path / "run", dataset=color_images())
    trained, start = run.model().state_dict(), run.start_model().state_dict()
    changed = {name for name, value in trained.items() if not torch.equal(value, start[name])}
    assert changed
    assert all("lora_" in name or name.startswith("head.") for name in changed)
    again = kinfold.Run.open(tmp_path / "run", color_images())
    assert torch.equal(again.embed(color_images()), run.embed(color_images()))
    more = kinfold.train(
        {**tables(data={"validation": 0.3}), "model": {"weights": str(tmp_path / "run")}},
        tmp_path / "more",
        changes=["training.steps=0"],
        dataset=color_images(),
    )
    assert more.config.lora == run.config.lora


def test_early_layers_learn_slower():
    model = create("conv4", dim=4, backbone_options={"width": 8})
    groups = build_parameter_groups(
        model, Objective(nn.Identity()), OptimizerConfig(lr=1.0, layer_decay=0.5, head_lr=2.0)
    )
    rates = {id(parameter): group["lr"] for group in groups for parameter in group["params"]}
    for number in range(1, 5):
        block = model.backbone.get_submodule(f"block{number}")
        assert {rates[id(parameter)] for parameter in block.parameters()} == {0.5 ** (5 - number)}
    assert {rates[id(parameter)] for parameter in model.head.parameters()} == {2.0}
    assert len(rates) == len([*model.parameters()])


def test_layers_between_stages_learn_with_the_next_one():
    model = create("efficientnet-lite0", dim=4)
    groups = build_parameter_groups(model, Objective(nn.Identity()), OptimizerConfig(lr=1.0, layer_decay=0.5))
    rates = {id(parameter): group["lr"] for group in groups for parameter in group["params"]}
    network, last = model.backbone.get_network(), len(model.backbone.stages)
    assert rates[id(network.get_parameter("_conv_stem.weight"))] == 0.5**last
    assert rates[id(network.get_parameter("_blocks.1._bn0.weight"))] == 0.5 ** (last - 1)
    assert rates[id(network.get_parameter("_conv_head.weight"))] == 1.0


def test_rates_by_layer_need_layers():
    model = create("features", dim=4, backbone_options={"width": 8})
    model.backbone = create("conv4", dim=4).backbone
    model.backbone.stages = ()
    with pytest.raises(ValueError, match=r"optimizer.layer_decay = 0.5 needs a backbone with stages"):
        build_parameter_groups(model, Objective(nn.Identity()), OptimizerConfig(layer_decay=0.5))
    with pytest.raises(ValueError, match=r"optimizer.layer_decay must be"):
        kinfold.training.configure({"optimizer": {"layer_decay": 0.0}})
