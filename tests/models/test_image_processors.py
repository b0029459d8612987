"""Pipelines from the files of transformers give the pixels of its own processors."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from kinfold import models
from kinfold.data import CenterCrop, Compose, Resize, Warp
from kinfold.models.image_processors import build_pipeline

transformers = pytest.importorskip("transformers")


def picture(size=(75, 50)):
    ramp = np.add.outer(np.linspace(0, 200, size[1]), np.linspace(0, 55, size[0]))
    colors = np.stack([ramp, ramp[::-1], ramp[:, ::-1]], axis=2) + np.random.default_rng(0).normal(
        0, 5, (*ramp.shape, 3)
    )
    return Image.fromarray(colors.clip(0, 255).astype(np.uint8))


def tiny_vit(folder, **processor):
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=3, num_attention_heads=2, intermediate_size=32, image_size=32, patch_size=8
    )
    transformers.ViTModel(config, add_pooling_layer=False).save_pretrained(folder)
    if processor:
        (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return folder


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("ViT", {"size": {"height": 32, "width": 32}}),
        ("ViT", {"size": {"height": 32, "width": 32}, "resample": 3, "image_mean": [0.1, 0.2, 0.3]}),
        ("CLIP", {"size": {"shortest_edge": 40}, "crop_size": {"height": 32, "width": 32}}),
        ("Bit", {"size": {"shortest_edge": 36}, "crop_size": {"height": 32, "width": 32}}),
        ("ConvNext", {"size": {"shortest_edge": 32}, "crop_pct": 0.875}),
        ("ConvNext", {"size": {"shortest_edge": 384}}),
    ],
)
def test_the_pixels_are_those_of_the_processor(kind, options, tmp_path):
    processor = getattr(transformers, f"{kind}ImageProcessorPil")(**options)
    processor.save_pretrained(tmp_path)
    settings = json.loads((tmp_path / "preprocessor_config.json").read_text())
    pipeline = build_pipeline(settings, "tiny")
    image = picture()
    expected = processor(images=image, return_tensors="pt").pixel_values
    assert pipeline.normalize is not None
    pixels = torch.from_numpy(np.array(pipeline.test(image, torch.Generator()))).permute(2, 0, 1)[None]
    torch.testing.assert_close(pipeline.normalize(pixels), expected, atol=1e-5, rtol=0)
    assert pipeline.train(image, torch.Generator()).size == pipeline.test(image, torch.Generator()).size


def test_a_backbone_has_the_pipeline_and_the_blocks_of_its_folder(tmp_path):
    folder = tiny_vit(tmp_path, size={"shortest_edge": 36}, crop_size=32, do_center_crop=True, resample=3)
    backbone = models.create(f"transformers/{folder}", weights="pretrained", dim=4).backbone
    pipeline = backbone.get_pipeline()
    assert pipeline is not None
    assert pipeline.test == Compose((Resize(36, Image.Resampling.BICUBIC), CenterCrop(32)))
    assert [name.rpartition(".")[2] for name in backbone.stages] == ["0", "1", "2"]
    assert backbone(torch.zeros(2, 3, 32, 32)).shape == (2, 16)
    assert backbone(torch.zeros(2, 3, 48, 48)).shape == (2, 16)  # position embeddings are interpolated
    (folder / "preprocessor_config.json").unlink()
    assert models.create(f"transformers/{folder}", dim=4).backbone.get_pipeline() is None


@pytest.mark.parametrize(
    ("settings", "steps"),
    [
        ({"size": 32}, (Resize(32), CenterCrop(32))),
        ({"size": {"height": 32, "width": 32}, "do_center_crop": False, "crop_size": 20}, Warp(32)),
        ({"do_resize": False, "crop_size": 32}, CenterCrop(32)),
    ],
)
def test_older_and_unusual_settings(settings, steps):
    pipeline = build_pipeline(settings, "old")
    assert (pipeline.test.steps if isinstance(pipeline.test, Compose) else pipeline.test) == steps


def test_what_a_pipeline_cannot_do_is_an_error():
    with pytest.raises(ValueError, match=r"kinfold takes squares: set data.pipeline and data.size"):
        build_pipeline({"size": {"height": 32, "width": 64}}, "wide")
    with pytest.raises(ValueError, match="has 1 channels, not 3"):
        build_pipeline({"size": 32, "image_mean": [0.5], "image_std": [0.5]}, "gray")
