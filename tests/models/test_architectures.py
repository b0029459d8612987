"""ResNet-50 and BN-Inception are the published networks: counts, keys, and outputs against other implementations."""

import pytest
import torch
import torch.nn.functional as F

from kinfold import models

# channels and side of what a block gives for 224 pixels, from the tables of the Caffe model
INCEPTION = {
    "3a": (256, 28),
    "3b": (320, 28),
    "3c": (576, 14),
    "4a": (576, 14),
    "4b": (576, 14),
    "4c": (608, 14),
    "4d": (608, 14),
    "4e": (1056, 7),
    "5a": (1024, 7),
    "5b": (1024, 7),
}


def parameters(backbone):
    return sum(parameter.numel() for parameter in backbone.parameters())


def trained(backbone):
    """Any statistics but 0 and 1, any scale but 1, so that nothing cancels by chance."""
    generator = torch.Generator().manual_seed(2)
    for key, value in backbone.state_dict().items():
        if key.endswith("running_var"):
            value.uniform_(0.5, 1.5, generator=generator)
        elif value.ndim == 1:
            value.uniform_(-0.5, 1.0, generator=generator)
    return backbone.double().eval()


def images(size, count=2):
    return torch.randn(count, 3, size, size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_known_numbers_of_parameters():
    # with their classifiers for 1000 classes: 25,557,032 and 11,295,240
    assert parameters(models.create("resnet50").backbone) == 25_557_032 - 2049 * 1000 == 23_508_032
    assert parameters(models.create("bn-inception").backbone) == 11_295_240 - 1025 * 1000 == 10_270_240


def test_keys_and_shapes_of_the_published_resnet50():
    manifest = models.list_weight_shapes(models.create("resnet50").backbone)
    assert len(manifest) == 265  # 53 convolutions, 53 batch norms of four entries
    assert manifest["conv1.weight"] == (64, 3, 7, 7)
    assert manifest["bn1.running_var"] == (64,)
    assert manifest["layer1.0.downsample.0.weight"] == (256, 64, 1, 1)
    assert manifest["layer1.0.downsample.1.running_mean"] == (256,)
    assert manifest["layer3.5.conv2.weight"] == (256, 256, 3, 3)
    assert manifest["layer4.0.conv1.weight"] == (512, 1024, 1, 1)
    assert manifest["layer4.2.bn3.bias"] == (2048,)
    assert not any(key.startswith("layer1.1.downsample") for key in manifest)


def test_keys_and_shapes_of_the_published_bn_inception():
    manifest = models.list_weight_shapes(models.create("bn-inception").backbone)
    assert len(manifest) == 69 * 6  # convolutions with a bias, batch norms of four entries
    assert manifest["conv1_7x7_s2.weight"] == (64, 3, 7, 7)
    assert manifest["conv1_7x7_s2.bias"] == (64,)
    assert manifest["conv1_7x7_s2_bn.running_mean"] == (64,)
    assert manifest["conv2_3x3_reduce.weight"] == (64, 64, 1, 1)
    assert manifest["inception_3a_1x1.weight"] == (64, 192, 1, 1)
    assert manifest["inception_3c_double_3x3_2.weight"] == (96, 96, 3, 3)
    assert manifest["inception_4d_double_3x3_1.weight"] == (192, 160, 3, 3)
    assert manifest["inception_4e_3x3.weight"] == (192, 128, 3, 3)
    assert manifest["inception_5a_3x3_reduce.weight"] == (192, 1056, 1, 1)
    assert manifest["inception_5b_double_3x3_reduce.weight"] == (192, 1024, 1, 1)
    assert manifest["inception_5b_pool_proj.weight"] == (128, 1024, 1, 1)
    assert "inception_3c_1x1.weight" not in manifest
    assert "inception_4e_pool_proj.weight" not in manifest


@pytest.mark.parametrize(("size", "last"), [(224, 7), (227, 7), (256, 8)])
def test_bn_inception_has_the_sizes_of_the_caffe_model(size, last):
    backbone = models.create("bn-inception").backbone.eval()
    sizes = {}
    for block in INCEPTION:
        layer = backbone.get_submodule(f"inception_{block}_output")
        layer.register_forward_hook(lambda _, __, maps, block=block: sizes.update({block: tuple(maps.shape[1:3])}))
    with torch.no_grad():
        maps = backbone(torch.zeros(1, 3, size, size))
    assert maps.shape == (1, 1024, last, last)
    assert {block: channels for block, (channels, _) in sizes.items()} == {b: c for b, (c, _) in INCEPTION.items()}
    if size == 224:
        assert sizes == INCEPTION


def convolved(weights, name, maps, stride=1):
    """One convolution with batch norm by its definition, from the entries of a weight file."""
    kernel = weights[f"{name}.weight"]
    maps = F.conv2d(maps, kernel, weights[f"{name}.bias"], stride, padding=(kernel.shape[-1] - 1) // 2)
    mean, variance, scale, shift = (
        weights[f"{name}_bn.{entry}"][:, None, None] for entry in ("running_mean", "running_var", "weight", "bias")
    )
    return ((maps - mean) / (variance + 1e-5).sqrt() * scale + shift).clamp_min(0)


def inception(weights, name, maps):
    """A block from the entries of a weight file: what is there decides what is done."""
    halves = f"{name}_pool_proj.weight" not in weights
    stride = 2 if halves else 1
    branches = [] if halves else [convolved(weights, f"{name}_1x1", maps)]
    branches.append(convolved(weights, f"{name}_3x3", convolved(weights, f"{name}_3x3_reduce", maps), stride))
    double = convolved(weights, f"{name}_double_3x3_1", convolved(weights, f"{name}_double_3x3_reduce", maps))
    branches.append(convolved(weights, f"{name}_double_3x3_2", double, stride))
    if halves:
        branches.append(F.max_pool2d(maps, 3, 2, ceil_mode=True))
    else:
        around = F.max_pool2d(maps, 3, 1, 1) if name.endswith("5b") else F.avg_pool2d(maps, 3, 1, 1)
        branches.append(convolved(weights, f"{name}_pool_proj", around))
    return torch.cat(branches, dim=1)


def test_bn_inception_computes_what_its_weights_say():
    backbone = trained(models.create("bn-inception").backbone)
    weights = backbone.state_dict()
    maps = F.max_pool2d(convolved(weights, "conv1_7x7_s2", images(96), 2), 3, 2, ceil_mode=True)
    maps = convolved(weights, "conv2_3x3", convolved(weights, "conv2_3x3_reduce", maps))
    maps = F.max_pool2d(maps, 3, 2, ceil_mode=True)
    for block in INCEPTION:
        maps = inception(weights, f"inception_{block}", maps)
    features = backbone(images(96))
    assert features.abs().max() > 1e-6
    assert torch.allclose(features, maps, rtol=1e-9, atol=1e-12 * maps.abs().max().item())


def test_resnet50_computes_what_the_one_of_transformers_computes():
    transformers = pytest.importorskip("transformers", reason="transformers is an extra")
    backbone = trained(models.create("resnet50").backbone)
    other = transformers.ResNetModel(transformers.ResNetConfig()).double().eval()
    weights = backbone.state_dict()
    other.load_state_dict({key: weights[_key(key)] for key in other.state_dict()})
    assert {_key(key) for key in other.state_dict()} == set(weights)
    with torch.no_grad():
        expected = other(images(64)).last_hidden_state
        features = backbone(images(64))
    assert features.abs().max() > 1e-6
    assert torch.allclose(features, expected, rtol=1e-9, atol=1e-12 * expected.abs().max().item())


def _key(other):
    """The torchvision key of a key of transformers, such as encoder.stages.0.layers.1.layer.2.convolution.weight."""
    *path, part, entry = other.split(".")
    if path[0] == "embedder":
        return f"{'conv1' if part == 'convolution' else 'bn1'}.{entry}"
    stage, block, kind = int(path[2]) + 1, path[4], path[5:]
    if kind == ["shortcut"]:
        return f"layer{stage}.{block}.downsample.{0 if part == 'convolution' else 1}.{entry}"
    return f"layer{stage}.{block}.{'conv' if part == 'convolution' else 'bn'}{int(kind[1]) + 1}.{entry}"
