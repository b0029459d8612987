"""Networks by name: shapes, what a backbone says about itself, seeds, and what is refused."""

import pytest
import torch
from torch import nn

import kinfold
from kinfold import models, registry
from kinfold.data import create_pipeline
from kinfold.models.embedder import pool_maps

OPTIONS = {"features": {"width": 12}}
INPUTS = {"conv4": (3, 1, 28, 28), "features": (3, 12), "bn-inception": (3, 3, 96, 96), "resnet50": (3, 3, 64, 64)}


def create(name, **options):
    return models.create(name, backbone_options=OPTIONS.get(name), **options)


def values(shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", INPUTS)
def test_images_become_features_of_the_stated_width_and_embeddings_of_the_wanted_size(name):
    embedder = create(name, dim=7).eval()
    images = values(INPUTS[name])
    features, embeddings = embedder.features(images), embedder(images)
    assert features.shape == (3, embedder.backbone.width)
    assert embeddings.shape == (3, 7)
    assert embedder.dim == 7
    assert torch.equal(embeddings, embedder.head(features))
    assert (embeddings.norm(dim=1) - 1).abs().max() > 1e-3  # raw


@pytest.mark.parametrize("name", INPUTS)
def test_stages_run_in_the_order_they_are_named(name):
    backbone = create(name).backbone.eval()
    ran = []
    for stage in backbone.stages:
        backbone.get_submodule(stage).register_forward_hook(lambda *_, stage=stage: ran.append(stage))
    backbone(values(INPUTS[name]))
    assert tuple(ran) == backbone.stages
    assert len(backbone.stages) == len(set(backbone.stages))


def test_what_a_stage_gives_can_be_replaced():
    backbone = create("bn-inception").backbone.eval()
    images = values((2, 3, 64, 64))
    plain = backbone(images)
    backbone.get_submodule("inception_4a_output").register_forward_hook(lambda _, __, maps: maps.flip(0))
    assert torch.allclose(backbone(images), plain.flip(0), atol=1e-6)
    assert not torch.allclose(plain, plain.flip(0), atol=1e-6)


@pytest.mark.parametrize("name", INPUTS)
def test_the_pipeline_of_a_backbone_exists_and_reads_as_it_wants(name):
    backbone = create(name).backbone
    if name == "features":
        assert backbone.pipeline is None
        assert backbone.mode is None
    else:
        assert create_pipeline(backbone.pipeline).mode == backbone.mode
        assert len(create_pipeline(backbone.pipeline).normalize.mean) == INPUTS[name][1]


def test_pooling_against_loops():
    maps = values((2, 3, 4, 5))
    for item in range(2):
        for channel in range(3):
            pixels = maps[item, channel].flatten().tolist()
            mean, largest = sum(pixels) / 20, max(pixels)
            assert pool_maps(maps, "avg")[item, channel].item() == pytest.approx(mean, abs=1e-6)
            assert pool_maps(maps, "max")[item, channel].item() == largest
            assert pool_maps(maps, "avg+max")[item, channel].item() == pytest.approx(mean + largest, abs=1e-6)
    assert torch.equal(pool_maps(maps[:, :, 0, 0], "avg+max"), maps[:, :, 0, 0])  # pooled already
    embedder = create("conv4", pool="avg+max").eval()
    images = values(INPUTS["conv4"])
    assert torch.equal(embedder.features(images), pool_maps(embedder.backbone(images), "avg+max"))


def same(first, second):
    return all(
        torch.equal(a, b) for a, b in zip(first.state_dict().values(), second.state_dict().values(), strict=True)
    )


@pytest.mark.parametrize("name", INPUTS)
def test_the_seed_alone_decides_the_start_and_the_global_generator_is_left_alone(name):
    before = torch.get_rng_state()
    first = create(name, seed=3)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(5)
    assert same(first, create(name, seed=3))
    assert not torch.equal(first.head.weight, create(name, seed=4).head.weight)
    if name != "features":
        assert not same(first.backbone, create(name, seed=4).backbone)


def test_the_global_generator_is_given_back_when_a_network_cannot_be_made():
    before = torch.get_rng_state()
    with pytest.raises(ValueError, match="multiple of 8"):
        models.create("conv4", backbone_options={"width": 9})
    assert torch.equal(torch.get_rng_state(), before)


def test_the_head_starts_alike_whatever_the_backbone_drew():
    wide = models.create("conv4", backbone_options={"width": 64})
    rows = models.create("features", backbone_options={"width": 64})
    assert torch.equal(wide.head.weight, rows.head.weight)


def test_conv4_takes_gray_and_color_of_several_sizes_and_every_weight_learns():
    for channels, size in ((1, 28), (1, 32), (3, 105), (1, 8)):
        embedder = models.create("conv4", dim=5, backbone_options={"channels": channels, "width": 16})
        embedder(values((4, channels, size, size))).square().sum().backward()
        assert all(parameter.grad is not None for parameter in embedder.parameters())
        assert all(parameter.grad.abs().sum() > 0 for parameter in embedder.backbone.block1.parameters())
    assert models.create("conv4", backbone_options={"channels": 3}).backbone.mode == "RGB"


def test_mlp_head_has_the_layers_that_were_asked_for():
    head = models.create("conv4", 6, "mlp", head_options={"hidden": 9, "batch_norm": True, "dropout": 0.5}).head
    kinds = [nn.Linear, nn.BatchNorm1d, nn.ReLU, nn.Dropout, nn.Linear]
    assert [type(layer) for layer in head.children()] == kinds
    assert (head[0].out_features, head[-1].out_features) == (9, 6)
    plain = models.create("conv4", 6, "mlp").head
    assert [type(layer) for layer in plain.children()] == [nn.Linear, nn.ReLU, nn.Linear]
    assert plain[0].out_features == 256


def test_rows_of_a_half_precision_file_are_taken_as_float32():
    embedder = create("features")
    rows = values((3, 12)).half()
    assert torch.equal(embedder.features(rows), rows.float())
    assert embedder.features(rows.double()).dtype == torch.float64


def test_invalid_options_are_errors_with_an_explanation():
    with pytest.raises(ValueError, match="did you mean 'conv4'"):
        models.create("conv-4")
    with pytest.raises(ValueError, match="did you mean 'linear'"):
        models.create("conv4", head="linar")
    with pytest.raises(ValueError, match=r"did you mean 'avg\+max'"):
        models.create("conv4", pool="avgmax")
    with pytest.raises(ValueError, match="'frozen-statistics' fixes"):
        models.create("conv4", batch_norm="eval")
    with pytest.raises(ValueError, match="did you mean 'width'"):
        models.create("conv4", backbone_options={"widht": 64})
    with pytest.raises(ValueError, match="'features' needs the option width"):
        models.create("features")
    with pytest.raises(ValueError, match="dim must be at least 1"):
        models.create("conv4", dim=0)
    with pytest.raises(ValueError, match="no library provides weights of 'conv4'"):
        models.create("conv4", weights="imagenet")
    with pytest.raises(ValueError, match=r"expected images of shape \(B, 1, H, W\), got \(2, 3, 28, 28\)"):
        models.create("conv4")(torch.zeros(2, 3, 28, 28))
    with pytest.raises(ValueError, match=r"get_pipeline\(\).normalize\(images\)"):
        models.create("conv4")(torch.zeros(2, 1, 28, 28, dtype=torch.uint8))
    with pytest.raises(ValueError, match=r"expected features of shape \(B, 12\), got \(3, 11\)"):
        create("features")(torch.zeros(3, 11))
    with pytest.raises(ValueError, match="channels must be 1"):
        models.create("conv4", backbone_options={"channels": 2})


class Foreign(models.Backbone):
    """A backbone of a user: one class."""

    width = 3
    pipeline = "study"

    def forward(self, images):
        return images


def test_a_custom_backbone_is_registered_and_used(own_names):
    registry.register("backbones", "foreign", f"{__name__}:Foreign")
    registry.register("backbones", "no-backbone", "torch.nn:ReLU")
    assert "foreign" in kinfold.list("backbones")
    assert models.create("foreign", dim=2)(torch.zeros(4, 3, 5, 5)).shape == (4, 2)
    with pytest.raises(ValueError, match="registered as a backbone but makes a ReLU"):
        models.create("no-backbone")


def test_every_registered_name_resolves():
    for kind in ("backbones", "heads"):
        for name in kinfold.list(kind):
            assert callable(registry.resolve(kind, name))


@pytest.mark.parametrize(("count", "trained"), [(0, 4), (1, 3), (-1, 1), (4, 0)])
def test_frozen_stages_need_no_gradient(count, trained):
    backbone = models.create("conv4").freeze_stages(count).backbone
    stages = {name.partition(".")[0] for name, value in backbone.named_parameters() if value.requires_grad}
    assert stages == {f"block{number}" for number in range(5 - trained, 5)}


@pytest.mark.parametrize("count", [5, -4, -5])
def test_more_stages_than_there_are_cannot_be_frozen(count):
    with pytest.raises(ValueError, match=f"4 stages, too few for frozen_stages = {count}"):
        models.create("conv4").freeze_stages(count)
